// Reads lines of JSON, {secret, headers, body}, verifies each message, and prints their number.
import { createInterface } from 'node:readline'
import { Webhook } from 'standardwebhooks'

let verified = 0
for await (const line of createInterface({ input: process.stdin })) {
  const { secret, headers, body } = JSON.parse(line)
  new Webhook(secret).verify(body, headers)
  verified += 1
}
process.stdout.write(JSON.stringify({ verified }) + '\n')
