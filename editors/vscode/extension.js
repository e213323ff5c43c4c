// The editor's side of `clew dap`: which command to start, and three commands of its own. All debugging is clew's.
"use strict";
const vscode = require("vscode");
const { execFile } = require("node:child_process");

const command = () => vscode.workspace.getConfiguration("clew").get("command", "clew");

/** A word for the shell. */
const quoted = (word) => `'${word.replace(/'/g, "'\\''")}'`;

async function inTerminal(verb) {
  const line = await vscode.window.showInputBox({ prompt: `The program to ${verb}, and its arguments` });
  if (!line) return;
  const terminal = vscode.window.createTerminal("clew");
  terminal.show();
  terminal.sendText(`${quoted(command())} ${verb} -- ${line}`);
}

/** Recordings, as `clew ls --json` tells them. */
function recordings() {
  return new Promise((resolve) => {
    execFile(command(), ["ls", "--json"], { maxBuffer: 64 << 20 }, (error, text) => {
      if (error) {
        vscode.window.showErrorMessage(`${command()} ls: ${error.message}`);
        return resolve([]);
      }
      resolve(JSON.parse(text).recordings);
    });
  });
}

async function attach() {
  const all = await recordings();
  const items = all.map((one) => ({ label: String(one.name), description: one.end?.how ?? "" }));
  const chosen = await vscode.window.showQuickPick(items, { placeHolder: "Which recording?" });
  if (!chosen) return;
  await vscode.debug.startDebugging(undefined, {
    type: "clew",
    request: "attach",
    name: `clew: ${chosen.label}`,
    recording: chosen.label,
  });
}

exports.activate = (context) => {
  context.subscriptions.push(
    vscode.debug.registerDebugAdapterDescriptorFactory("clew", {
      createDebugAdapterDescriptor: () => new vscode.DebugAdapterExecutable(command(), ["dap"]),
    }),
    vscode.debug.registerDebugConfigurationProvider("clew", {
      // F5 without a configuration: the latest recording.
      resolveDebugConfiguration: (_folder, config) =>
        config.type ? config : { type: "clew", request: "attach", name: "clew: the latest recording" },
    }),
    vscode.commands.registerCommand("clew.record", () => inTerminal("record")),
    vscode.commands.registerCommand("clew.hunt", () => inTerminal("hunt")),
    vscode.commands.registerCommand("clew.attach", attach),
  );
};

exports.deactivate = () => {};
