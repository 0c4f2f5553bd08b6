// Building and updating the document. Data becomes text or an attribute here, never markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "path", "circle", "rect", "line", "g", "polyline", "title", "text"]);
const AS_PROPERTY = new Set(["value", "checked", "indeterminate", "disabled", "selected"]);

/**
 * h("div.card", {onclick, title, style: {width: "3px"}}, "text", node, [more], null); the object may be left out
 * @type {Ui.Make}
 */
export const h = (/** @type {string} */ tag, /** @type {any[]} */ ...rest) => {
  const props = isProps(rest[0]) ? rest.shift() : {};
  const [name, ...classes] = tag.split(".");
  const node = SVG_TAGS.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(props)) setProp(node, key, value);
  append(node, rest);
  return /** @type {any} */ (node); // which one `Ui.Make` says by the tag
};

/** @param {unknown} it */
const isProps = (it) =>
  it !== null && typeof it === "object" && Object.getPrototypeOf(it) === Object.prototype;

/**
 * @param {any} node whose properties are set by name
 * @param {string} key
 * @param {any} value
 */
function setProp(node, key, value) {
  if (key.startsWith("on")) {
    node[key] = value;
    node.handlers ??= new Set();
    node.handlers.add(key);
  } else if (key === "style") {
    for (const [name, text] of Object.entries(value)) node.style.setProperty(name, text);
  } else if (AS_PROPERTY.has(key)) {
    node[key] = value;
    node.kept ??= new Set();
    node.kept.add(key);
  } else if (key === "key") {
    node.key = String(value);
  } else if (value === true) {
    node.setAttribute(key, "");
  } else if (value !== false && value !== null && value !== undefined) {
    node.setAttribute(key, value);
  }
}

/**
 * @param {Element} node
 * @param {readonly Ui.Child[]} children
 */
function append(node, children) {
  for (const child of children) {
    if (child instanceof Node) node.append(child);
    else if (typeof child === "object" && child !== null) append(node, child);
    else if (child !== null && child !== undefined && child !== false) node.append(String(child));
  }
}

/**
 * A part of the frame in index.html.
 * @param {string} id
 */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/**
 * What is typed into a field of a form.
 * @param {HTMLFormElement} form
 * @param {string} name
 */
export const textIn = (form, name) => String(new FormData(form).get(name) ?? "");

/**
 * @param {Element} node
 * @param {string} selector of what is in it
 */
export function focusOn(node, selector) {
  const found = node.querySelector(selector);
  if (found instanceof HTMLElement) found.focus();
}

/**
 * A place in a tree for a node that looks after itself (a chart, a table): morph leaves it alone.
 * @param {Node} node
 */
export function hold(node) {
  const place = document.createElement("i");
  place.holds = node;
  return place;
}

/**
 * Makes the children of `target` equal to `children`, touching only what differs: focus,
 * scroll positions and what is typed stay, and nothing flickers.
 * @param {Element} target
 * @param {...Ui.Child} children
 */
export function render(target, ...children) {
  const wanted = document.createElement("div");
  append(wanted, children);
  morphChildren(target, wanted);
}

/**
 * @param {Node} target
 * @param {Node} wanted
 */
function morphChildren(target, wanted) {
  /** @type {Map<string, ChildNode>} */
  const keyed = new Map();
  for (const node of target.childNodes) if (node.key) keyed.set(node.key, node);
  let at = target.firstChild;
  for (const node of [...wanted.childNodes]) {
    const found = node.holds ?? (node.key ? keyed.get(node.key) : at && alike(at, node) ? at : null);
    if (!found) {
      target.insertBefore(settle(node), at);
      continue;
    }
    if (at && found === at) at = at.nextSibling;
    else target.insertBefore(found, at);
    if (!node.holds) morph(found, node);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/**
 * @param {Node} node
 * @param {Node} wanted
 */
function alike(node, wanted) {
  return !node.key && !node.isWidget && node.nodeName === wanted.nodeName && !wanted.key;
}

/** @param {Node} node */
function settle(node) {
  if (!(node instanceof Element)) return node;
  for (const place of [...node.getElementsByTagName("i")]) {
    if (place.holds) place.replaceWith(place.holds);
  }
  return node;
}

/**
 * @param {any} node whose properties are set by name
 * @param {any} wanted
 */
function morph(node, wanted) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.data !== wanted.data) node.data = wanted.data;
    return;
  }
  if (node.nodeName !== wanted.nodeName) {
    node.replaceWith(settle(wanted));
    return;
  }
  for (const { name } of [...node.attributes]) {
    if (!wanted.hasAttribute(name)) node.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (name === "style") continue; // through the CSSOM below: the policy of the page allows no style attribute
    if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  }
  if (wanted.style)
    for (const name of wanted.style) node.style.setProperty(name, wanted.style.getPropertyValue(name));
  for (const key of node.handlers ?? []) if (!wanted.handlers?.has(key)) node[key] = null;
  for (const key of wanted.handlers ?? []) node[key] = wanted[key];
  node.handlers = wanted.handlers;
  if (!node.isWidget) morphChildren(node, wanted);
  for (const key of wanted.kept ?? []) {
    if (node[key] !== wanted[key] && !(key === "value" && node === document.activeElement))
      node[key] = wanted[key];
  }
}

/**
 * Marks a node as looking after its own children.
 * @template {Node} Kind
 * @param {Kind} node
 */
export function widget(node) {
  node.isWidget = true;
  return node;
}
