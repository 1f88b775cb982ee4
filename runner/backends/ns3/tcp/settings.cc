// SPDX-License-Identifier: GPL-2.0-only
#include "settings.h"

#include <stdexcept>

namespace chakrascope::tcp {

bool Settings::has(const std::string& name) const { return values_.count(name) > 0; }

std::string Settings::word(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end()) throw std::runtime_error("the setting '" + name + "' is absent");
    return found->second;
}

std::uint64_t Settings::number(const std::string& name) const {
    const std::string text = word(name);
    std::size_t read = 0;
    std::uint64_t value = 0;
    try {
        value = std::stoull(text, &read);
    } catch (const std::exception&) {
        read = 0;
    }
    if (read == 0 || read != text.size())
        throw std::runtime_error("the setting '" + name + "' is not a number: '" + text + "'");
    return value;
}

}  // namespace chakrascope::tcp
