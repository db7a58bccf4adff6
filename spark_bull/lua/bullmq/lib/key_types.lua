-- The types of the keys by which jobs move, by their names in scripts; see check_types.
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
