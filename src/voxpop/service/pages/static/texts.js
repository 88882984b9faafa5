// Numbers and addresses of the dashboard.
/* global address, brief, fixed */

// What answers on images consist of.
export const COORDINATES = { point: ["x", "y"], box: ["x", "y", "width", "height"] };

// As many decimals as the uncertainty leaves meaning to.
export function estimateText(x, sd) {
  if (x === null || x === undefined) return "–";
  if (sd === 0) return brief(x); // a truth that is known
  return fixed(x, sd > 0 ? Math.min(Math.max(1 - Math.floor(Math.log10(sd)), 0), 8) : 2);
}

export const taskAddress = (name) => address("task", name);
export const workerAddress = (pseudonym) => address("worker", pseudonym);
