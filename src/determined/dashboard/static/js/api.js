// Questions and verbs to the server.

/** What can be asked and sent, and what comes back: see the types made from the API's description. */

export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {Partial<Api.Problem>} body
   */
  constructor(status, body) {
    super(body.error ?? `The server responded with status ${status}.`);
    this.status = status;
    this.next = body.next ?? "";
  }
}

/** @type {Api.SessionJson | null} */
let session = null;

/** @param {Record<string, Ui.Value>} params */
export const query = (params) =>
  new URLSearchParams(
    Object.entries(params)
      .filter(([, it]) => it !== null && it !== undefined && it !== "")
      .map(([name, it]) => [name, String(it)]),
  ).toString();

/**
 * @template {(string | number)[]} Parts
 * @param {Parts} parts
 * @returns {`/api${Ui.Joined<Parts>}`}
 */
export const path = (...parts) => /** @type {any} */ (`/api/${parts.map(encodeURIComponent).join("/")}`); // the type repeats what is done here

/**
 * @param {string} url
 * @param {RequestInit} options
 */
async function answer(url, options) {
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (isAbort(error)) throw error;
    throw new ApiError(0, {
      error: "The dashboard is not responding.",
      next: "Is `det dashboard` still running?",
    });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ApiError(response.status, body);
}

/**
 * Whether a question was given up by who asked it: that is no failure.
 * @param {unknown} error
 */
export const isAbort = (error) => error instanceof Error && error.name === "AbortError";

/**
 * @template {string} Address
 * @param {Address} url
 * @param {{ [Name in Api.Get<Address>["parameters"]]?: Ui.Value }} [params]
 * @param {AbortSignal} [signal]
 * @returns {Promise<Api.Get<Address>["answer"]>}
 */
export async function get(url, params = {}, signal = undefined) {
  const text = query(params);
  return (await answer(text ? `${url}?${text}` : url, { signal })).json();
}

/**
 * @template {string} Address
 * @param {Address} url
 * @param {{ [Name in Api.Get<Address>["parameters"]]?: Ui.Value }} params
 * @param {AbortSignal} [signal]
 */
export async function getBytes(url, params, signal) {
  return (await answer(`${url}?${query(params)}`, { signal })).arrayBuffer();
}

/** @param {AbortSignal} [signal] */
export async function getSession(signal) {
  session = await get("/api/session", {}, signal);
  return session;
}

/**
 * `delete` is not everywhere: only verbs that the server names get a button.
 * @param {string} name
 */
export const hasVerb = (name) => session?.verbs.includes(name) ?? name !== "delete";

/**
 * @template {"POST" | "PATCH"} Method
 * @template {string} Address
 * @param {Method} method
 * @param {Address} url
 * @param {Ui.Sent<Method, Address>["body"]} [body]
 * @returns {Promise<Ui.Sent<Method, Address>["answer"]>}
 */
export async function send(method, url, body = undefined) {
  const { csrf } = session ?? (await getSession());
  /** @type {Record<string, string>} */
  const headers = { "X-Det-Token": csrf };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  return (
    await answer(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) })
  ).json();
}
