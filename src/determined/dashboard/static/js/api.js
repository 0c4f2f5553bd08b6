// Questions and verbs to the server.

export class ApiError extends Error {
  constructor(status, body) {
    super(body.error ?? `The server responded with status ${status}.`);
    this.status = status;
    this.next = body.next ?? "";
  }
}

let session = null;

export const query = (params) =>
  new URLSearchParams(
    Object.entries(params).filter(([, it]) => it !== null && it !== undefined && it !== ""),
  ).toString();

export const path = (...parts) => `/api/${parts.map(encodeURIComponent).join("/")}`;

async function answer(url, options) {
  let response;
  try {
    response = await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {
      error: "The dashboard is not responding.",
      next: "Is `det dashboard` still running?",
    });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => ({}));
  throw new ApiError(response.status, body);
}

export async function get(url, params = {}, signal = undefined) {
  const text = query(params);
  return (await answer(text ? `${url}?${text}` : url, { signal })).json();
}

export async function getBytes(url, params, signal) {
  return (await answer(`${url}?${query(params)}`, { signal })).arrayBuffer();
}

export async function getSession(signal) {
  session = await get("/api/session", {}, signal);
  return session;
}

// `delete` is not everywhere: only verbs that the server names get a button.
export const hasVerb = (name) => session?.verbs?.includes(name) ?? name !== "delete";

export async function send(method, url, body = undefined) {
  if (!session) await getSession();
  const options = { method, headers: { "X-Det-Token": session.csrf } };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  return (await answer(url, options)).json();
}
