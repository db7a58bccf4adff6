-- @include lib: finite_number is_true

-- How many finished jobs a job's option `name`, removeOnComplete or removeOnFail, lets the queue keep: {count, age (s),
-- limit}; nil: all.
local function keep_rule(opts, name)
  local rule = opts[name]
  if type(rule) == 'number' then
    return rule >= 0 and {count = math.ceil(rule)} or nil
  end
  if type(rule) ~= 'table' then
    return is_true(rule) and {count = 0} or nil
  end
  local kept = {}
  for _, name in ipairs({'count', 'age', 'limit'}) do
    local number = finite_number(rule[name])
    if number and number >= 0 then
      kept[name] = math.floor(number)
    end
  end
  return kept
end
