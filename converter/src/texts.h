// Interned texts, which are numbered and stored once, and concatenated texts in the layout of NumPy
// arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace chakrascope::converter {

// Concatenated byte strings. String i ends at ends[i].
struct TextTable {
    std::string_view bytes;
    std::span<const std::int64_t> ends;

    std::string_view operator[](std::int64_t number) const {
        const auto at = static_cast<std::size_t>(number);
        const auto begin = at == 0 ? 0 : static_cast<std::size_t>(ends[at - 1]);
        return bytes.substr(begin, static_cast<std::size_t>(ends[at]) - begin);
    }
};

class Texts {
  public:
    // Return the number of *text* in the table. A new text gets a new number.
    std::int32_t number(std::string_view text) {
        const auto known = numbers_.find(text);
        if (known != numbers_.end()) return known->second;
        const auto number = static_cast<std::int32_t>(strings_.size());
        strings_.emplace_back(text);
        numbers_.emplace(strings_.back(), number);
        return number;
    }

    const std::deque<std::string>& strings() const { return strings_; }

  private:
    std::deque<std::string> strings_;  // a deque never moves its elements
    std::unordered_map<std::string_view, std::int32_t> numbers_;
};

}  // namespace chakrascope::converter
