// In: clew, a recording of lines.c, its source, the line of `twice`. Out: "walked", if the protocol makers' own client could go through it.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { DebugClient } = createRequire(`${process.cwd()}/`)("@vscode/debugadapter-testsupport");
const [clew, recording, source, line] = process.argv.slice(2);

// The client starts the adapter as a script of its runtime: here that is `clew dap`.
const client = new DebugClient(clew, "dap", "clew");
await client.start();
const timer = setTimeout(() => { console.log("no answer"); process.exit(1); }, 240_000);

// Its own procedure: initialize, attach, breakpoint, configurationDone, and on to the breakpoint.
client.defaultTimeout = 60_000;
const [, , , stopped] = await Promise.all([
  client.initializeRequest({ adapterID: "clew", linesStartAt1: true, columnsStartAt1: true, pathFormat: "path" })
    .then(() => client.attachRequest({ recording, stopOnEntry: false })),
  client.waitForEvent("initialized").then(async () => {
    const set = await client.setBreakpointsRequest({ source: { path: source }, breakpoints: [{ line: Number(line) }] });
    assert.equal(set.body.breakpoints[0].verified, true);
    await client.configurationDoneRequest();
  }),
  client.waitForEvent("initialized"),
  client.assertStoppedLocation("breakpoint", { path: source, line: Number(line) }),
]);
assert.equal(stopped.body.stackFrames[0].name, "leaf");

const value = async (name) => {
  const { body } = await client.stackTraceRequest({ threadId: 1 });
  const frameId = body.stackFrames[0].id;
  return (await client.evaluateRequest({ expression: name, frameId, context: "watch" })).body.result;
};
const going = (request) => Promise.all([client.waitForEvent("stopped"), request]);
assert.equal(await value("n"), "0");
for (const n of ["1", "2"]) {
  await going(client.continueRequest({ threadId: 1 }));
  assert.equal(await value("n"), n);
}
await going(client.reverseContinueRequest({ threadId: 1 }));
assert.equal(await value("n"), "1");
await Promise.all([
  client.assertStoppedLocation("step", { path: source, line: Number(line) + 1 }),
  client.nextRequest({ threadId: 1 }),
]);
await Promise.all([
  client.assertStoppedLocation("step", { path: source, line: Number(line) }),
  client.stepBackRequest({ threadId: 1 }),
]);
await Promise.all([client.waitForEvent("terminated"), client.disconnectRequest({})]);
clearTimeout(timer);
console.log("walked");
process.exit(0);
