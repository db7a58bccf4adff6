-- The types of the keys by which jobs move, by their names in scripts, as the loader reads them: see core/store/scripts.py.
local KEY_TYPES = {
  active = 'list',
  completed = 'zset',
  delayed = 'zset',
  events = 'stream',
  failed = 'zset',
  id = 'string',
  marker = 'zset',
  meta = 'hash',
  paused = 'list',
  pc = 'string',
  prioritized = 'zset',
  repeats = 'zset',
  stalled = 'set',
  wait = 'list',
  waiting_children = 'zset',
}
