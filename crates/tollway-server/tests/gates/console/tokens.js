// Uses the console of a gate with tokens as a person does, in Chromium. Prints what it saw as one line of JSON.
// Arguments: the address of the admin gate, and tokens with the scopes decide, read and admin.
const { launch } = require("./browser.js");

const [admin, decide, read, all] = process.argv.slice(2);
const seen = { messages: [] };

/** Opens the console in a tab of its own. */
async function openConsole(context) {
  const page = await context.newPage();
  page.on("console", (message) => {
    // The browser itself reports each answer that is an error.
    const isRefusal = /the server responded with a status of 40[13] /.test(message.text());
    if (["error", "warning"].includes(message.type()) && !isRefusal) seen.messages.push(message.text());
  });
  page.on("pageerror", (error) => seen.messages.push(String(error)));
  await page.goto(`http://${admin}/`);
  return page;
}

/** Waits until the page asks for a token, for this reason. */
async function asked(page, reason) {
  await page.waitForFunction((reason) => document.getElementById("token-dialog").open
    && document.getElementById("token-error").textContent === reason, reason);
}

async function connect(page, token) {
  await page.fill("#token-input", token);
  await page.getByRole("button", { name: "Connect" }).click();
}

async function healthy(page) {
  await page.waitForFunction(() => document.getElementById("health-text").textContent === "healthy");
}

/** Asks what a bucket is in, and then to reset it. */
async function reset(page) {
  await page.fill("#explain-input", "Login alice");
  await page.keyboard.press("Enter");
  await page.locator("#explanation dd").first().waitFor();
  seen.explained = (await page.textContent("#explanation-body")).includes("Denied now");
  await page.locator("#explanation").getByRole("button", { name: "Reset Login" }).click();
  await page.getByRole("button", { name: "Reset", exact: true }).click();
}

const kept = (page) => page.evaluate(() => sessionStorage.getItem("tollway-token"));

async function main() {
  const browser = await launch();
  const context = await browser.newContext();
  const page = await openConsole(context);
  await asked(page, "");
  await connect(page, `tw_${"0".repeat(64)}`);
  await asked(page, "This token is not known.");
  await connect(page, decide);
  await asked(page, "This token may not see the console.");
  seen.keeps_token = (await kept(page)) === decide;
  // Who closes the dialog without a token has none, also after the tab is loaded again.
  await page.keyboard.press("Escape");
  await asked(page, "");
  seen.kept_without_token = await kept(page);
  await page.reload();
  await asked(page, "");

  await connect(page, read);
  await healthy(page);
  await reset(page);
  await page.waitForFunction(() => document.getElementById("reset-error").textContent !== "");
  seen.refused = await page.textContent("#reset-error");
  await page.keyboard.press("Escape");

  // The token stays in the tab, and in no other.
  await page.reload();
  await healthy(page);
  const other = await openConsole(context);
  await asked(other, "");
  await connect(other, all);
  await healthy(other);
  await reset(other);
  await other.waitForFunction(() => document.getElementById("announce").textContent.includes("is reset"));
  await browser.close();
  console.log(JSON.stringify(seen));
}

main().catch((error) => { console.error(error, JSON.stringify(seen)); process.exit(1); });
