// Builds the page into the package: `node build.mjs [FOLDER]`.
import { build } from "esbuild";
import { copyFileSync, readFileSync, rmSync, mkdirSync } from "node:fs";

const folder = process.argv[2] ?? "../tvsnap/plugins/server/page";
const sheets = JSON.stringify(new URL("src/sheets.ts", import.meta.url).pathname);

// xterm.js makes elements and attributes of style, which the content security policy refuses; here it sets the same rules
// and properties by other means.
const withoutInlineStyles = {
  name: "without inline styles",
  setup(made) {
    made.onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, ({ path }) => {
      let text = readFileSync(path, "utf8");
      const replace = (pattern, words, count) => {
        const found = text.match(pattern)?.length ?? 0;
        if (found !== count) throw new Error(`xterm.js has ${found} times ${pattern}, not ${count}: look at it anew`);
        text = text.replace(pattern, words);
      };
      replace(/[\w$.]+\.createElement\("style"\)/g, "makeSheet()", 3);
      replace(/([\w$]+)\.setAttribute\("style",`\$\{\1\.getAttribute\("style"\)\|\|""\}\$\{([\w$]+)\};`\)/g, '$1.style.cssText+=$2+";"', 1);
      return { contents: `import {makeSheet} from ${sheets};${text}`, loader: "js" };
    });
  },
};

rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });
await build({
  entryPoints: { page: "src/page.tsx", style: "src/page.css" },
  outdir: folder,
  chunkNames: "[name]",
  bundle: true,
  minify: true,
  splitting: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "external",
  charset: "utf8",
  plugins: [withoutInlineStyles],
});
copyFileSync("src/index.html", `${folder}/index.html`);
