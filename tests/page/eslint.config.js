import js from "@eslint/js";

const BROWSER =
  "document window location history matchMedia getComputedStyle URL Blob Response " +
  "DecompressionStream ImageData URLSearchParams atob setTimeout";
const NODE = "Buffer URL";
const globals = (/** @type {string} */ names) =>
  Object.fromEntries(names.split(" ").map((name) => [name, "readonly"]));
const rules = {
  "prefer-const": "error",
  "no-var": "error",
  eqeqeq: "error",
  "no-shadow": "error",
  "max-lines": ["error", 250],
};

export default [
  { ignores: ["tests/page/node_modules/"] },
  js.configs.recommended,
  { files: ["interp/pages/assets/*.js"], languageOptions: { globals: globals(BROWSER) }, rules },
  { files: ["tests/page/*.js"], languageOptions: { globals: globals(NODE) }, rules },
];
