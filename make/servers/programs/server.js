// A server of a few keys: GET /KEY counts its requests; GET /quit ends it.
const counts = new Map();
const server = require('http').createServer((request, response) => {
  counts.set(request.url, (counts.get(request.url) || 0) + 1);
  response.end('served');
  if (request.url === '/quit') setTimeout(() => process.exit(0), 50);
});
server.listen(Number(process.argv[2]), '127.0.0.1');
