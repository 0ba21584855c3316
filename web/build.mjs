// Builds web/src into src/assay/reports/assets and records which sources the files came from.
// `node build.mjs --check` builds in memory and fails if the vendored files differ.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { readFile, readdir, writeFile } from "node:fs/promises";

const assets = new URL("../src/assay/reports/assets/", import.meta.url);
const sources = new URL("./src/", import.meta.url);
const common = { bundle: true, minify: true, write: false, legalComments: "none", charset: "utf8", target: ["es2020", "chrome111", "firefox113", "safari16.2"] };

const outputs = {};
for (const [entry, out] of [["report.ts", "report.js"], ["viewer.ts", "viewer.js"], ["report.css", "report.css"], ["viewer.css", "viewer.css"]]) {
  const format = entry.endsWith(".ts") ? { format: "iife" } : {};
  const result = await build({ ...common, ...format, entryPoints: [new URL(entry, sources).pathname] });
  outputs[out] = result.outputFiles[0].text.trim() + "\n";
}
const manifest = {};
for (const name of (await readdir(sources)).sort()) {
  manifest[name] = createHash("sha256").update(await readFile(new URL(name, sources))).digest("hex");
}
outputs["sources.json"] = JSON.stringify(manifest, null, 1) + "\n";

let stale = false;
for (const [name, text] of Object.entries(outputs)) {
  const file = new URL(name, assets);
  if (process.argv.includes("--check")) {
    const vendored = await readFile(file, "utf8").catch(() => "");
    if (vendored !== text) { console.error(`${name} is not what the sources build; run: npm run build`); stale = true; }
  } else {
    await writeFile(file, text);
  }
}
process.exitCode = stale ? 1 : 0;
