-- The types of the keys by which jobs move, by their names in scripts; see check_types.
local KEY_TYPES = {
  active = 'list',
  completed = 'zset',
  delayed = 'zset',
  failed = 'zset',
  id = 'string',
  paused = 'list',
  priority = 'zset',
  repeats = 'zset',
  stalled = 'set',
  wait = 'list',
}
