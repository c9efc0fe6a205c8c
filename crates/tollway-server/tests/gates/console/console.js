// Uses the console as a person does, in Chromium, while requests arrive. Prints what it saw as one line of JSON.
// Arguments: the address of the admin gate, the address of the http gate, and a folder for screenshots, or nothing.
const fs = require("node:fs");
const { launch } = require("./browser.js");

const [admin, http, screenshots] = process.argv.slice(2);
const seen = { messages: [], violations: [], off_screen: [], wider_than_phone: false };

async function spend(id, cost = 1) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ limit: "Login", id, cost }) };
  return (await fetch(`http://${http}/v1/spend`, options)).json();
}

async function upload(user) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ selectors: { user } }) };
  return (await fetch(`http://${http}/v1/rules/upload`, options)).json();
}

/** Sends requests of a few ids until it is told to stop. One of them is denied most of the time. */
function startTraffic() {
  let running = true;
  const done = (async () => {
    while (running) {
      await Promise.all([spend("mallory"), spend("mallory"), spend(`user-${Math.floor(Math.random() * 50)}`)]);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  return async () => { running = false; await done; };
}

/** Returns the first events of a stream that is opened now. */
async function liveEvents(count) {
  const abort = new AbortController();
  const response = await fetch(`http://${admin}/v1/live`, { signal: abort.signal });
  let text = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (text.split("\n\n").length > count) break;
  }
  abort.abort();
  return text.split("\n\n").slice(0, count);
}

async function checkAccess(page, theme) {
  await page.addScriptTag({ content: fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8") });
  const { violations } = await page.evaluate(() => window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa"] }));
  seen.violations.push(...violations.map(({ id, nodes }) => `${theme}: ${id}: ${nodes[0].html}`));
}

/** Returns the cases of `tollway top` that the console formats in another way. The function is cut out of the page. */
function otherDurations() {
  const page = fs.readFileSync(`${__dirname}/../../../src/gate/http/console/console.js`, "utf8");
  const duration = new Function(`return ${page.match(/^function duration[^]*?^}/m)[0]}`)();
  const cases = JSON.parse(fs.readFileSync(`${__dirname}/../../../../tollway-top/tests/durations.json`, "utf8"));
  return cases.filter(([seconds, text]) => duration(seconds) !== text);
}

/** Returns what one would have to scroll sideways for. Runs in the page. */
function outOfSight() {
  const parts = [...document.querySelectorAll("main td, main td *, main .scroll")].filter((part) => !part.closest("[hidden], svg"));
  const isOut = (part) => {
    const { left, right, width } = part.getBoundingClientRect();
    return width > 0 && (left < 0 || right > window.innerWidth || part.scrollWidth > part.clientWidth + 1 && part.matches(".scroll, td"));
  };
  return parts.filter(isOut).map((part) => part.outerHTML.slice(0, 100));
}

/** Returns the words that a row of a table has beside its texts, and its buttons. Runs in the page. */
function labelsAndButtons(row) {
  const label = (cell) => getComputedStyle(cell, "::before").content.replaceAll('"', "");
  return [...row.cells].flatMap((cell) => (cell.className === "actions" ? [...cell.querySelectorAll("button")].map((button) => button.textContent) : [label(cell)]));
}

async function main() {
  seen.other_durations = otherDurations();
  const browser = await launch();
  let stopTraffic = startTraffic();
  // The policy of the page forbids scripts from elsewhere; the one that checks it for access is put in by the test.
  const context = await browser.newContext({ bypassCSP: false, viewport: { width: 1280, height: 1300 } });
  const page = await context.newPage();
  page.on("console", (message) => { if (["error", "warning"].includes(message.type())) seen.messages.push(message.text()); });
  page.on("pageerror", (error) => seen.messages.push(String(error)));
  await page.goto(`http://${admin}/`);

  await page.waitForFunction(() => document.getElementById("health-text").textContent === "healthy");
  await page.waitForFunction(() => /[1-9]/.test(document.getElementById("denied").textContent));
  const before = await page.textContent("#allowed-note") + await page.textContent("#denied-note");
  await page.waitForFunction((before) => document.getElementById("allowed-note").textContent + document.getElementById("denied-note").textContent !== before, before);

  const row = page.locator("#top-denied tbody tr", { hasText: "mallory" });
  await row.waitFor();
  seen.denied = (await row.locator("code").textContent()).trim();
  // A rule is listed by who asked.
  for (let times = 0; times < 20; times += 1) await upload("vova");
  await page.locator("#top-denied tbody tr", { hasText: "upload" }).locator("code", { hasText: /^user=vova$/ }).waitFor();
  seen.limits = await page.locator("#limits tbody tr").count();
  // Denials that look alike have a row each.
  await page.waitForFunction(() => document.querySelectorAll("#last-denials tbody tr").length === 100);

  // A denial is in the next snapshot that follows it: of a stream that is opened after it, the first can have been
  // taken before. The page draws the snapshot that it has got, and waits for no other. Others would take the place of
  // this denial in the list, so nobody else is denied meanwhile.
  await stopTraffic();
  // If this id were taken for HTML, it would be an image, also where it is explained.
  const markup = "<img src=x onerror=alert(1)>";
  await spend(markup, 5);
  seen.allowed_twice = (await spend(markup, 5)).allowed;
  const events = await liveEvents(3);
  seen.is_in_next_snapshot = events[2].includes(markup);
  const drawn = await context.newPage();
  const stream = { contentType: "text/event-stream", body: `${events[0]}\n\n${events[2]}\n\n` };
  await drawn.route("**/v1/live", (route) => route.fulfill(stream));
  await drawn.goto(`http://${admin}/`);
  await drawn.locator("#last-denials tbody tr", { hasText: markup }).waitFor();
  await drawn.close();
  await page.locator("#last-denials tbody tr", { hasText: markup }).waitFor();
  stopTraffic = startTraffic();
  // So often that it stays on the list of those who are denied most.
  await Promise.all(Array.from({ length: 50 }, () => spend(markup)));
  const listed = page.locator("#top-denied tbody tr", { hasText: markup });
  await listed.getByRole("button", { name: "Explain Login" }).click();
  await page.locator("#explanation-title", { hasText: markup }).waitFor();
  await page.locator("#explanation").getByRole("button", { name: "Reset Login" }).click();
  await page.locator("#reset-dialog", { hasText: markup }).waitFor();
  seen.markup = await page.evaluate(() => document.querySelectorAll("main script, img").length);
  await page.keyboard.press("Escape");
  await page.click("#explanation-close");

  // By keyboard alone: the first field after the page's start explains a bucket.
  await page.focus("#explain-input");
  await page.keyboard.type("Login mallory");
  await page.keyboard.press("Enter");
  await page.locator("#explanation dd").first().waitFor();
  seen.explained = (await page.textContent("#explanation-body")).includes("Denied now");
  await page.keyboard.press("Tab");
  if (screenshots) await page.locator("#explanation").screenshot({ path: `${screenshots}/console-explain.png` });
  await page.click("#explanation-close");

  // An id may begin with colons.
  await page.fill("#explain-input", "Login ::1");
  await page.keyboard.press("Enter");
  await page.locator("#explanation-title", { hasText: /^Login ::1$/ }).waitFor();
  await page.click("#explanation-close");

  // A rule is explained, too.
  await page.fill("#explain-input", "upload user=vova");
  await page.keyboard.press("Enter");
  await page.locator("#explanation ul.tree li").first().waitFor();
  await page.click("#explanation-close");
  if (screenshots) await page.screenshot({ path: `${screenshots}/console-light.png` });

  // Reset asks first, and cancelling changes nothing.
  await stopTraffic();
  await row.getByRole("button", { name: "Reset Login mallory" }).click();
  await page.keyboard.press("Escape");
  seen.allowed_after_cancel = (await spend("mallory")).allowed;
  await row.getByRole("button", { name: "Reset Login mallory" }).click();
  await page.getByRole("button", { name: "Reset", exact: true }).click();
  await page.waitForFunction(() => document.getElementById("announce").textContent.includes("is reset"));
  seen.allowed_after_reset = (await spend("mallory")).allowed;

  // An id that is not ASCII is shown with escapes, and its own bucket is reset. One that was cut cannot be named.
  const cut = "x".repeat(200);
  for (const id of ["zo\u00eb", cut]) await Promise.all(Array.from({ length: 100 }, () => spend(id)));
  const escaped = page.locator("#top-denied tbody tr", { hasText: "zo\\xc3\\xab" });
  await escaped.getByRole("button", { name: "Reset" }).click();
  await page.getByRole("button", { name: "Reset", exact: true }).click();
  await page.waitForFunction(() => document.getElementById("announce").textContent.includes("zo"));
  seen.allowed_after_reset_of_escaped = (await spend("zo\u00eb")).allowed;
  const rowOfCut = page.locator("#top-denied tbody tr", { hasText: "xxx" });
  await rowOfCut.waitFor();
  seen.buttons_of_cut = await rowOfCut.getByRole("button").count();

  // A stream that stays silent is not taken for live figures, and is opened again.
  const silent = await context.newPage();
  await silent.clock.install();
  await silent.goto(`http://${admin}/`);
  await silent.waitForFunction(() => document.getElementById("health-text").textContent === "healthy");
  await silent.clock.fastForward(6000);
  await silent.waitForFunction(() => document.getElementById("health-text").textContent.startsWith("no live figures: the server sent nothing"));
  await silent.waitForFunction(() => document.getElementById("health-text").textContent === "healthy");
  await silent.close();

  // The checks of access need a script of their own, so they run in a copy of the page without its policy.
  const open = await browser.newContext({ bypassCSP: true, viewport: { width: 1280, height: 1300 } });
  for (const theme of ["light", "dark"]) {
    const copy = await open.newPage();
    await copy.emulateMedia({ colorScheme: theme });
    await copy.goto(`http://${admin}/`);
    await copy.waitForFunction(() => document.getElementById("health-text").textContent === "healthy");
    await checkAccess(copy, theme);
    if (screenshots) await copy.screenshot({ path: `${screenshots}/console-${theme}-quiet.png` });
    await copy.close();
  }
  for (const theme of ["light", "dark"]) {
    const phone = await browser.newContext({ viewport: { width: 400, height: 844 }, isMobile: true, colorScheme: theme });
    const small = await phone.newPage();
    await small.goto(`http://${admin}/`);
    const shown = small.locator("#top-denied tbody tr", { hasText: "zo\\xc3\\xab" });
    await shown.waitFor();
    seen.wider_than_phone ||= await small.evaluate(() => document.documentElement.scrollWidth > 400);
    seen.off_screen.push(...await small.evaluate(outOfSight));
    seen.on_phone = await shown.evaluate(labelsAndButtons);
    const cut = small.locator("#top-denied tbody tr", { hasText: "xxx" }).locator("code");
    seen.cut_on_phone = [(await cut.textContent()).length, (await cut.getAttribute("title")).length];
    await cut.click();
    seen.whole_on_phone = (await cut.textContent()).length;
    await cut.click();
    if (screenshots) await small.screenshot({ path: `${screenshots}/console-phone-${theme}.png`, fullPage: true });
    await phone.close();
  }
  await browser.close();
  console.log(JSON.stringify(seen));
}

main().catch((error) => { console.error(error, JSON.stringify(seen)); process.exit(1); });
