-- The states of finished jobs.

-- As in bull/lib: Bull 1 has SETs.
local finished_state = {
  kind = 'set',
  take = 'SREM',
  has = function(state, id)
    return redis.call('SISMEMBER', state, id) == 1
  end,
}

-- Bull 1 keeps all finished jobs or, of completed ones, none.
local function keep_rule(opts, name)
  local is_given = name == 'removeOnComplete' and opts[name] and opts[name] ~= cjson.null
  return is_given and {count = 0} or nil
end
