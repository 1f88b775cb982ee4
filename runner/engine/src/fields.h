// The valid values of configuration fields, and the function that checks a value.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "errors.h"

namespace chakrascope::engine {

constexpr double kLargestInt = 2'147'483'647;  // ASTRA-sim reads integers into 32 bits
constexpr double kLongestNs = 1e12;            // the sum of millions of such times stays below 2^64
constexpr int kMostOvertaking = 2;
constexpr double kLargestOfChip = 1e12;  // in 10^9 bytes per second or TFLOPS

// The valid values of a field: a range of numbers, a list of words, or every value of the type.
struct Values {
    double smallest = -std::numeric_limits<double>::infinity();
    double largest = std::numeric_limits<double>::infinity();
    std::vector<std::string> words;
};

inline Values any() { return {}; }
inline Values range(double smallest, double largest) { return {smallest, largest, {}}; }
template <class... Words>
Values choice(const Words&... words) {
    Values values;
    values.words = {words...};
    return values;
}

// Return the key of a field in configuration files.
inline std::string key_of(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

// Raise ConfigError if the value is not valid for the field `name`.
template <class T>
void check_value(const char* name, const T& value, const Values& valid) {
    if constexpr (std::is_arithmetic_v<T>) {
        std::ostringstream message;
        message.precision(15);
        const auto number = static_cast<double>(value);
        if (valid.smallest <= number && number <= valid.largest) return;
        message << "'" << key_of(name) << "' must be between " << valid.smallest << " and " << valid.largest
                << ", but is " << number << ".";
        throw ConfigError(message.str());
    }
}

// Return the index of a word in the list of valid words of a field. Raises ConfigError if the word is
// not valid.
inline std::size_t place_of_word(const char* name, const std::string& word, const Values& valid) {
    const auto& words = valid.words;
    const auto found = std::find(words.begin(), words.end(), word);
    if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
    std::string message = "'" + key_of(name) + "' cannot be '" + word + "'; known are ";
    for (const std::string& each : words) message += (&each == &words.front() ? "" : ", ") + each;
    throw ConfigError(message + ".");
}

}  // namespace chakrascope::engine
