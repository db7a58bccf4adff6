// Asks the search of the built site, as a browser does: node search_site.js SITE QUERY... prints a list of places per query.
const fs = require('fs');
const path = require('path');

const [site, ...queries] = process.argv.slice(2);
const workers = path.join(site, 'assets', 'javascripts', 'workers');
const index = JSON.parse(fs.readFileSync(path.join(site, 'search', 'search_index.json'), 'utf8'));
const waiting = [...queries];
const found = [];
let answer;

global.self = global;
global.location = new URL('http://site.example.org/');
global.addEventListener = (_, listener) => { answer = (data) => listener({ data }); };
global.postMessage = ({ type, data }) => {
  if (type === 3) found.push(data.items.flatMap((page) => page.map(({ location }) => location)));
  if (waiting.length) answer({ type: 2, data: waiting.shift() });
  else console.log(JSON.stringify(found));
};
require(path.resolve(workers, fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name))));
answer({ type: 0, data: { ...index, options: { suggest: false } } });
