-- Returns a table of the texts of numbers, which formats each number once: Redis formats number arguments as doubles with
-- 17 digits, which costs more than the rest of writing a small field. A table costs a fraction of a function call.
local function number_texts()
  return setmetatable({}, {
    __index = function(known, number)
      local text = string.format('%.0f', number)
      known[number] = text
      return text
    end,
  })
end
