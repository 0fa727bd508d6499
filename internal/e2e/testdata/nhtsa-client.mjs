// Drives a published client of NHTSA's API, its own code unchanged. Its address is fixed, so its fetch is given another origin.
//
//   node nhtsa-client.mjs PACKAGE ORIGIN < calls.json
//
// A call is [function, ...arguments]. For each the outcome is printed: what the client gave its caller, or the message of what it threw.
import { createRequire } from 'node:module'
import { text } from 'node:stream/consumers'

const [folder, origin] = process.argv.slice(2)
const client = createRequire(import.meta.url)(folder)
const ours = globalThis.fetch
const statuses = []
globalThis.fetch = async (url, options) => {
  const response = await ours(String(url).replace('https://vpic.nhtsa.dot.gov', origin), options)
  statuses.push(response.status)
  return response
}

const outcomes = []
for (const [name, ...args] of JSON.parse(await text(process.stdin))) {
  try {
    outcomes.push({ value: await client[name](...args) })
  } catch (error) {
    outcomes.push({ thrown: error.message.replaceAll(origin, 'ORIGIN') })
  }
}
console.log(JSON.stringify({ outcomes, statuses }))
