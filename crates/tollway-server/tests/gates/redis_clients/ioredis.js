// Asks a server with ioredis, and prints the replies as JSON. Arguments: the port, and the version of the protocol.

const Redis = require("ioredis");

async function main(port, protocol) {
  // By default, replies of version 3 look like those of version 2.
  const client = new Redis(protocol === 3 ? { port, protocol, replyMapping: "resp3" } : { port, protocol });
  const askBoth = async (pipeline) => {
    const replies = await pipeline.call("CL.THROTTLE", "key", 15, 30, 60).call("THROTTLE", "other", 15, 30, 60).exec();
    return replies.map(([error, reply]) => error ?? reply);
  };
  const replies = [
    await client.call("CL.THROTTLE", "key", 15, 30, 60),
    await client.call("THROTTLE", "other", 15, 30, 60),
    await client.call("TOLL", "SPEND", "Login", "alice"),
    await client.call("TOLL", "SPEND", "Login", "alice", 1, "RULE", "upload", "user=ann", "RULE", "closed"),
    await askBoth(client.pipeline()),
    await askBoth(client.multi()),
    await client.call("CL.THROTTLE", "key", "x", 30, 60).catch((error) => error.message.replace(/^ERR /, "")),
    await client.call("ECHO", "done"),
  ];
  console.log(JSON.stringify(replies));
  await client.quit();
}

main(...process.argv.slice(2).map(Number));
