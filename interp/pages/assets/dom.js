// @ts-check
// Elements, how wide texts are, and buttons that give a table as a file.
import { csvOf } from "./text.js";

/**
 * @param {string} tag
 * @param {Record<string, any>} attributes `text`, `style` and `on…` have their meaning
 * @param {(Node | string | null)[]} children
 * @returns {any}
 */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * @param {string} tag
 * @param {Record<string, any>} attributes
 * @param {(Node | string | null)[]} children
 * @returns {any}
 */
export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  return filled(node, attributes, children);
}

/**
 * @param {HTMLElement | SVGElement} node
 * @param {Record<string, any>} attributes
 * @param {(Node | string | null)[]} children
 */
function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "text") node.textContent = value;
    else if (key === "style") {
      for (const [name, x] of Object.entries(value)) node.style.setProperty(name, x);
    } else if (value !== null && value !== false && value !== undefined) {
      node.setAttribute(key, value === true ? "" : value);
    }
  }
  node.append(.../** @type {(Node | string)[]} */ (children.filter((child) => child !== null)));
  return node;
}

/** @param {string} name of a custom property */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function isDark() {
  return matchMedia("(prefers-color-scheme: dark)").matches;
}

/** @type {{context: CanvasRenderingContext2D | null}} */
const probe = { context: null };

/**
 * How wide a text is, in CSS pixels.
 * @param {string} text
 * @param {number} [size]
 * @param {string} [family]
 */
export function widthOf(text, size = 11, family = "system-ui, sans-serif") {
  probe.context ??= document.createElement("canvas").getContext("2d");
  if (!probe.context) return 0.6 * size * text.length;
  probe.context.font = `${size}px ${family}`;
  return probe.context.measureText(text).width;
}

/**
 * A part that scrolls sideways where it is too wide, also by keyboard.
 * @param {string} label
 * @param {(Node | string)[]} children
 */
export function scroller(label, ...children) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    ...children,
  );
}

/**
 * @param {string} name of the file
 * @param {() => Table} make
 */
export function dataButton(name, make) {
  const give = () => {
    const url = URL.createObjectURL(new Blob([csvOf(make())], { type: "text/csv" }));
    el("a", { href: url, download: `${name}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  const title = `these numbers, as ${name}.csv`;
  return el("button", {
    class: "data",
    type: "button",
    text: "data",
    title,
    onclick: give,
  });
}

/**
 * @param {string} title
 * @param {string[]} columns
 * @param {(string | number)[][]} rows
 */
export function tableOf(title, columns, rows) {
  const head = columns.map((c) => el("th", { scope: "col", text: c }));
  const body = rows.map((row) => el("tr", {}, ...row.map((x) => el("td", { text: String(x) }))));
  return el(
    "div",
    {},
    title ? el("h4", { text: title }) : null,
    scroller(
      title || "table",
      el(
        "table",
        { class: "data" },
        el("thead", {}, el("tr", {}, ...head)),
        el("tbody", {}, ...body),
      ),
    ),
  );
}
