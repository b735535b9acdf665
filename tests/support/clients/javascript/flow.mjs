// An ordinary OAuth client, which uses every step of the protocol from discovery to revocation.
// It prints the authorization URL as a line of JSON, and reads the URL of the browser's redirect
// from stdin. At the end, it prints its results as a line of JSON.
import { webcrypto } from 'node:crypto'
import { createInterface } from 'node:readline/promises'
import * as oauth from 'oauth4webapi'

// Older versions of Node.js have this API, but not as a global variable.
globalThis.crypto ??= webcrypto

const { issuer, clientId, clientSecret, redirectUri } = JSON.parse(process.argv[2])
// The test's server has no TLS.
const insecure = { [oauth.allowInsecureRequests]: true }
const address = new URL(issuer)
const discovered = await oauth.discoveryRequest(address, { algorithm: 'oauth2', ...insecure })
const server = await oauth.processDiscoveryResponse(address, discovered)
const client = { client_id: clientId }
const authentication = clientSecret ? oauth.ClientSecretBasic(clientSecret) : oauth.None()

const verifier = oauth.generateRandomCodeVerifier()
const state = oauth.generateRandomState()
const asking = new URL(server.authorization_endpoint)
asking.search = new URLSearchParams({
  client_id: clientId,
  redirect_uri: redirectUri,
  response_type: 'code',
  scope: 'credit.read',
  state,
  code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
  code_challenge_method: 'S256',
})
process.stdout.write(JSON.stringify({ asking: asking.href }) + '\n')

const lines = createInterface({ input: process.stdin })
const sentBack = new URL((await lines[Symbol.asyncIterator]().next()).value)
lines.close()
// The function also checks the state and the issuer.
const answer = oauth.validateAuthResponse(server, client, sentBack, state)
const exchanged = await oauth.authorizationCodeGrantRequest(
  server, client, authentication, answer, redirectUri, verifier, insecure,
)
const tokens = await oauth.processAuthorizationCodeResponse(server, client, exchanged)

async function call(method, path, body) {
  const headers = new Headers({ 'content-type': 'application/json' })
  const sent = body && JSON.stringify(body)
  const url = new URL(path, issuer)
  return oauth.protectedResourceRequest(tokens.access_token, method, url, headers, sent, insecure)
}

const balance = await (await call('GET', '/auxilia/credits/balance')).json()
let error
try {
  await call('POST', '/auxilia/credits/consume', { amount: 1, source_id: 'javascript' })
} catch (thrown) {
  if (!(thrown instanceof oauth.WWWAuthenticateChallengeError)) throw thrown
  error = { status: thrown.status, challenge: thrown.cause[0].parameters, scheme: thrown.cause[0].scheme }
}

const userInfo = await oauth.userInfoRequest(server, client, tokens.access_token, insecure)
const { sub } = await oauth.processUserInfoResponse(server, client, oauth.skipSubjectCheck, userInfo)
const refreshed = await oauth.processRefreshTokenResponse(server, client,
  await oauth.refreshTokenGrantRequest(server, client, authentication, tokens.refresh_token, insecure))
let isActive = null
if (clientSecret) {
  const introspected = await oauth.introspectionRequest(
    server, client, authentication, refreshed.access_token, insecure)
  isActive = (await oauth.processIntrospectionResponse(server, client, introspected)).active
}
await oauth.processRevocationResponse(
  await oauth.revocationRequest(server, client, authentication, refreshed.refresh_token, insecure))

process.stdout.write(JSON.stringify({
  scope: tokens.scope,
  balance: balance.data.balance_credit,
  error,
  sub,
  refreshed: refreshed.access_token !== tokens.access_token,
  isActive,
  accessToken: refreshed.access_token,
}) + '\n')
