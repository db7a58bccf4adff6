-- @include lib: json_of

-- The value at a path of names in a JSON object, as a text; nil for none, and for one that is no text or number.
local function value_at(text, path)
  local value = json_of(text)
  for _, name in ipairs(path) do
    if type(value) ~= 'table' then
      return nil
    end
    value = value[name]
  end
  if type(value) == 'number' then
    return string.format('%.17g', value)
  end
  return type(value) == 'string' and value or nil
end

-- The name of the group of a job, `opts.group.id` or else the value at `path` in its payload; nil for none.
local function name_of(path, opts, data)
  local group = opts and string.find(opts, '"group"', 1, true) and value_at(opts, {'group', 'id'})
  return group or data and value_at(data, path)
end

-- The same of a job by its key, and the length of its payload.
local function name_of_job(path, job_key)
  local row = redis.pcall('HMGET', job_key, 'opts', 'data')
  if row.err then
    return nil, 0
  end
  return name_of(path, row[1], row[2]), #(row[2] or '')
end

local group_name = {of = name_of, of_job = name_of_job}
