// Messages of a session in (a file with a JSON array), whether each is as the protocol's published types say out.
import { readFileSync } from "node:fs";
import Ajv from "ajv";
import { createGenerator } from "ts-json-schema-generator";

const types = "node_modules/@vscode/debugprotocol/lib/debugProtocol.d.ts";
const generator = createGenerator({
  path: types,
  type: "*",
  skipTypeCheck: true,
  additionalProperties: true,
  tsconfig: undefined,
});
const schema = generator.createSchema("*");
const known = Object.keys(schema.definitions);
const ajv = new Ajv({ strict: false, allErrors: true });
ajv.addSchema(schema, "dap");

// "stackTrace" and "response": DebugProtocol.StackTraceResponse.
const named = (name, kind) =>
  known.find((one) => one === `DebugProtocol.${name[0].toUpperCase()}${name.slice(1)}${kind}`);

let valid = 0;
for (const message of JSON.parse(readFileSync(process.argv[2], "utf8"))) {
  const kind = { request: "Request", response: "Response", event: "Event" }[message.type];
  const name = message.type === "event" ? message.event : message.command;
  let type = named(name, kind);
  if (message.type === "response" && !message.success) type = "DebugProtocol.ErrorResponse";
  if (!type) {
    console.log(`no type for ${message.type} ${name}`);
    process.exit(1);
  }
  const check = ajv.getSchema(`dap#/definitions/${encodeURIComponent(type)}`);
  if (!check(message)) {
    console.log(`${type}: ${JSON.stringify(check.errors)}\n${JSON.stringify(message).slice(0, 2000)}`);
    process.exit(1);
  }
  valid += 1;
}
console.log(`valid: ${valid}`);
