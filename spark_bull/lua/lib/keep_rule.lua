-- How many finished jobs a job's option `name`, removeOnComplete or removeOnFail, lets the queue keep: {count, age (s),
-- limit}; nil: all.
local function keep_rule(opts, name)
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
