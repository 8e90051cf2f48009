// Tells roots of one image apart, in words, as cli/roots.py does.
import type { Root } from "./api.ts";
import { size } from "./text.tsx";

const BYTES = ["memory", "disk", "output"];

/** Returns, by root, in what it differs from others of its image; empty where it differs from none of them. */
export function toldApart(roots: Root[]): Map<string, string> {
  const images = new Map<string, Root[]>();
  for (const root of roots) images.set(root.image_name, [...(images.get(root.image_name) ?? []), root]);
  return new Map([...images.values()].flatMap((group) => group.map((root): [string, string] => [root.hash, difference(root, group)])));
}

function difference(root: Root, group: Root[]): string {
  const differs = (of: (one: Root) => unknown) => new Set(group.map((one) => JSON.stringify(of(one)))).size > 1;
  const names = [...new Set(group.flatMap((one) => Object.keys(limits(one))))].sort();
  return [
    ...names.filter((name) => differs((one) => limits(one)[name] ?? null)).map((name) => `${name} ${shown(name, limits(root)[name])}`),
    differs((one) => one.network) ? `network ${root.network}` : "",
    differs((one) => one.salt) ? (root.salt ? `salt ${root.salt}` : "no salt") : "",
    differs((one) => one.image_digest) && root.image_digest ? `image ${root.image_digest.slice(0, 12)}` : "",
    differs((one) => one.environment) ? root.environment : "",
  ].filter(Boolean).join(", ");
}

function limits(root: Root): Record<string, unknown> {
  return root.limits ? JSON.parse(root.limits) : {};
}

function shown(name: string, value: unknown): string {
  if (value === undefined || value === null) return "unlimited";
  return typeof value === "number" && BYTES.some((part) => name.includes(part)) ? size(value) : `${value}`;
}
