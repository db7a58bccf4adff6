-- The rule in a job's options how many finished jobs to keep: {count, age, limit}; nil: all. `name`: removeOnComplete or
-- removeOnFail.
local function keep_of(opts, name)
  local rule = opts[name]
  if rule == true then
    return {count = 0}
  end
  if type(rule) == 'number' then
    return rule >= 0 and {count = rule} or nil
  end
  if type(rule) ~= 'table' then
    return nil
  end
  local kept = {}
  for _, name in ipairs({'count', 'age', 'limit'}) do
    if type(rule[name]) == 'number' and rule[name] >= 0 then
      kept[name] = rule[name]
    end
  end
  return kept
end
