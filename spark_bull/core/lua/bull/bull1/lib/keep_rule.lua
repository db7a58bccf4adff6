-- Bull 1 keeps all finished jobs or, of completed ones, none.
local function keep_rule(opts, name)
  local is_given = name == 'removeOnComplete' and opts[name] and opts[name] ~= cjson.null
  return is_given and {count = 0} or nil
end
