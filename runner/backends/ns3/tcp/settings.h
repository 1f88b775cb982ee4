// SPDX-License-Identifier: GPL-2.0-only
// The settings that the driver receives before it builds the network.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace chakrascope::tcp {

// The values of settings, which are integers or strings, by name. Settings have no default values here,
// because the caller sets and reports every default value.
class Settings {
  public:
    void set(const std::string& name, const std::string& value) { values_[name] = value; }
    bool has(const std::string& name) const;
    std::uint64_t number(const std::string& name) const;
    std::string word(const std::string& name) const;

  private:
    std::map<std::string, std::string> values_;
};

}  // namespace chakrascope::tcp
