#!/usr/bin/env bash
# zod 4.6.7, zod-to-json-schema 3.25.2: the schema of a tool that a model is told
#
# Guess: what the tool takes, or an error; limits that cannot be written are left out.
# Behaviour: zod-to-json-schema, made for zod 3, says {} for each schema of zod 4, so that a model may send anything, and nothing raises. zod's own function requires
# the fields that have a default, as it is told of what comes out unless io is "input"; the flag of /^a/i is dropped, so that a right "Abc" does not fit;
# a number that is read from a text must be a number.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund zod@4.6.7 zod-to-json-schema@3.25.2 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: zod@4.6.7 zod-to-json-schema@3.25.2; Node.js $(node --version)"

cat >schema.mjs <<'JS'
import { z } from 'zod'
import { zodToJsonSchema } from 'zod-to-json-schema'
const shown = ({ $schema, ...rest }) => console.log(JSON.stringify(rest))
const tool = z.object({ path: z.string(), lines: z.number().default(10) })
shown(zodToJsonSchema(tool))
console.log(JSON.stringify(z.toJSONSchema(tool).required), JSON.stringify(z.toJSONSchema(tool, { io: 'input' }).required))
const name = z.string().regex(/^a/i)
shown(z.toJSONSchema(name))
console.log(name.safeParse('Abc').success)
const count = z.coerce.number()
shown(z.toJSONSchema(count))
console.log(count.safeParse('12').success, count.safeParse('').data, count.safeParse(null).data, z.coerce.boolean().safeParse('false').data)
JS
node schema.mjs >out
seen "zod-to-json-schema for a path and a number of lines" "$(sed -n 1p out)" "{}"
seen "what zod requires, and with io: input" "$(sed -n 2p out)" '["path","lines"] ["path"]'
seen "zod for /^a/i, and whether Abc is right" "$(sed -n 3,4p out | paste -sd' ')" '{"type":"string","pattern":"^a"} true'
seen "zod for a number that is read from a text" "$(sed -n 5p out)" '{"type":"number"}'
seen "read as numbers: a text 12 is right, an empty text, null; a text false as a boolean" "$(sed -n 6p out)" "true 0 0 true"
