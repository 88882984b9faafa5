// Requests to the server: JSON both ways, and what can go wrong as one of two errors.

// The server said no: `status`, `reason` for the program, `detail` for people.
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body.detail || body.title || `HTTP ${status}`);
    Object.assign(this, { status, reason: body.reason || "", detail: this.message, retryAfter });
  }
}

// The server was not reached, so nobody knows whether the request arrived.
export class Offline extends Error {}

const LONGEST = 20_000;

export async function request(method, path, { body, headers = {} } = {}) {
  // The browser would write a failed request to the console.
  if (!navigator.onLine) throw new Offline("offline");
  let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method,
      headers: { ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      signal: AbortSignal.timeout(LONGEST),
    });
  } catch (error) {
    throw new Offline(String(error));
  }
  const text = await response.text().catch(() => "");
  let content = {};
  try {
    content = text ? JSON.parse(text) : {};
  } catch {
    if (response.ok) throw new Offline("the answer was cut short");
  }
  if (!response.ok) throw new Problem(response.status, content, Number(response.headers.get("Retry-After")) || null);
  return content;
}

export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// Wait until the browser is online again, or for a while, whichever is first.
export function untilOnline(ms) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    window.addEventListener("online", end);
  });
}

// Try until the server was reached; `told` hears why it takes longer (offline, busy), and null at last.
export async function persistently(attempt, told) {
  for (let k = 0; ; k++) {
    try {
      const content = await attempt();
      told(null);
      return content;
    } catch (error) {
      const busy = error instanceof Problem && (error.status === 503 || error.status === 429 || error.status === 502);
      if (!(error instanceof Offline) && !busy) {
        told(null);
        throw error;
      }
      const pause = Math.min(1500 * 2 ** k, 30_000);
      const seconds = busy ? Math.min(error.retryAfter || Math.ceil(pause / 1000), 60) : null;
      told(busy ? { busy: seconds } : { offline: true });
      await (busy ? sleep(1000 * seconds) : untilOnline(pause));
    }
  }
}
