// Values that the examples in the README use without a definition.
declare const secret: string;
declare const request: Request;
declare const clientId: string;
declare const redirectUri: string;
declare const save: (tokens: import("pressroom-client").Tokens) => Promise<void>;
