// Asks a server with node-redis, and prints the replies as JSON. Arguments: the port, and the version of the protocol.

const { createClient } = require("redis");

const text = (error) => error.message.replace(/^ERR /, "");

async function main(port, RESP) {
  const client = await createClient({ socket: { port }, RESP }).connect();
  const throttle = [["CL.THROTTLE", "key", "15", "30", "60"], ["THROTTLE", "other", "15", "30", "60"]];
  const replies = [
    await client.sendCommand(throttle[0]),
    await client.sendCommand(throttle[1]),
    await client.sendCommand(["TOLL", "SPEND", "Login", "alice"]),
    await client.sendCommand(["TOLL", "SPEND", "Login", "alice", "1", "RULE", "upload", "user=ann", "RULE", "closed"]),
    // What is sent in one turn is one pipeline.
    await Promise.all(throttle.map((command) => client.sendCommand(command))),
    await throttle.reduce((multi, command) => multi.addCommand(command), client.multi()).exec(),
    await client.sendCommand(["CL.THROTTLE", "key", "x", "30", "60"]).catch(text),
    await client.sendCommand(["ECHO", "done"]),
  ];
  console.log(JSON.stringify(replies));
  await client.close();
}

main(...process.argv.slice(2).map(Number));
