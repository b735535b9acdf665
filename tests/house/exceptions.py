"""Where the rules about folders and names don't hold, and why; a test finds needless ones."""

# Folders of one module for each resource, command or format: they grow with what the product has.
FOLDERS_OF_ANY_SIZE = {
    "api/routers": "one module for each resource",
    "api/routers/console": "one module for each part of the console",
    "api/schemas": "one module for each resource",
    "api/pages": "one module for each kind of page",
    "models": "one module for each aggregate",
    "core/refusals": "one module for each area",
    "cli": "one module for each group of commands",
}

# A resource has one name at every door: `lists` in these folders is `lists` of the services.
FOLDERS_BY_RESOURCE = frozenset(
    {
        "api/routers",
        "api/routers/console",
        "api/schemas",
        "models",
        "cli",
        "core/refusals",
        "workers/tasks",
    }
)

# A module with one of these names has the same part to play in its folder as in every other.
ROLES = {
    "catalogue": "the closed set of types that a room knows",
    "app": "builds the application that a process runs",
    "errors": "the exceptions of a room, or what becomes of them",
    "main": "where a process starts",
    "port": "what Pressroom asks of one kind of provider",
    "reading": "turns what is stored into what is asked for, piece by piece",
    "records": "the rows of an area as the API shows them",
    "registry": "picks a provider by the settings",
}

# The same thing, seen from two rooms.
SAME_THING = {
    "access": "credentials and scopes: services/ keep them, api/ asks for them",
    "challenges": "bot challenges, and the sandbox that plays their providers",
    "llm": "language models, and the sandbox that plays one",
    "money": "amounts and their digits in core/, what moves them in services/",
    "openverse": "the provider, and the sandbox that plays it",
    "pages": "HTML for people: the API's and the sandbox's",
    "stock_photos": "stock photos, and the sandbox that plays their providers",
    "webhooks": "signed calls between servers: payment providers call us, and we call owners",
    "unsplash": "the provider, and the sandbox that plays it",
}
