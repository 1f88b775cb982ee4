// Texts by number: each different one is kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace chakrascope::converter {

class Texts {
  public:
    // Return the number of *text*, a new one if it has not been seen.
    std::int32_t number(std::string_view text) {
        const auto known = numbers_.find(text);
        if (known != numbers_.end()) return known->second;
        const auto number = static_cast<std::int32_t>(kept_.size());
        kept_.emplace_back(text);
        numbers_.emplace(kept_.back(), number);
        return number;
    }

    const std::deque<std::string>& kept() const { return kept_; }

  private:
    std::deque<std::string> kept_;  // never moves its elements
    std::unordered_map<std::string_view, std::int32_t> numbers_;
};

}  // namespace chakrascope::converter
