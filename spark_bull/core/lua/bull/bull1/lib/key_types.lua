-- The types of the keys by which jobs move, by their names in scripts, as the loader reads them: see core/store/scripts.py.
local KEY_TYPES = {
  active = 'list',
  completed = 'set',
  delayed = 'zset',
  failed = 'set',
  id = 'string',
  paused = 'list',
  repeats = 'zset',
  stalled = 'set',
  wait = 'list',
}
