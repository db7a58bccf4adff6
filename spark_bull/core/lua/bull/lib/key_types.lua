-- The types of the keys by which jobs move, by their names in scripts, as the loader reads them: see core/store/scripts.py.
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
