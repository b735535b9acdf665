// The values that the examples of the README leave to the reader.
declare const secret: string;
declare const request: Request;
declare const clientId: string;
declare const redirectUri: string;
declare const save: (tokens: import("pressroom-client").Tokens) => Promise<void>;
