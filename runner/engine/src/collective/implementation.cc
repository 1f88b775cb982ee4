#include "implementation.h"

#include <charconv>

#include "../errors.h"

namespace chakrascope {
namespace {

constexpr std::array<const char*, 8> kNames = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                               "broadcast",  "reduce",         "gather",     "scatter"};

std::string key_of(std::size_t kind) {
    std::string key = kNames[kind];
    for (char& letter : key) letter = letter == '_' ? '-' : letter;
    return key + "-implementation";
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
    if (!text.starts_with(prefix)) return false;
    text.remove_prefix(prefix.size());
    return true;
}

// Read at most five characters of digits after the algorithm's name, as ASTRA-sim does.
std::int32_t read_window(std::string_view digits, const std::string& name) {
    if (digits.empty()) return -1;
    std::int32_t window = 0;
    digits = digits.substr(0, 5);
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), window);
    if (problem != std::errc() || window == 0 || window < -1) {
        throw ConfigError(
            "The collective algorithm '" + name +
            "' has no valid window; write 'direct' for all peers or 'direct4' for four at a time.");
    }
    return window;
}

Implementation parse(const std::string& name, const std::string& key) {
    using Algorithm = Implementation::Algorithm;
    std::string_view rest = name;
    Implementation implementation;
    implementation.whole = take_prefix(rest, "one");
    if (implementation.whole ? rest == "Ring" : rest == "ring") return implementation;
    if (take_prefix(rest, implementation.whole ? "Direct" : "direct")) {
        implementation.algorithm = Algorithm::Direct;
        implementation.window = read_window(rest, name);
        return implementation;
    }
    if (implementation.whole ? rest == "HalvingDoubling" : rest == "halvingDoubling") {
        implementation.algorithm = Algorithm::HalvingDoubling;
        return implementation;
    }
    if (name == "doubleBinaryTree") {
        implementation.algorithm = Algorithm::DoubleBinaryTree;
        return implementation;
    }
    throw ConfigError(
        "'" + key + "' names the unknown algorithm '" + name +
        "'; known are ring, direct, directN, halvingDoubling, doubleBinaryTree, oneRing, oneDirect, "
        "oneDirectN and oneHalvingDoubling.");
}

std::vector<Implementation> parse_list(const std::vector<std::string>& names, std::size_t dimensions,
                                       const std::string& key) {
    if (names.size() > dimensions) {
        throw ConfigError("'" + key + "' has " + std::to_string(names.size()) +
                          " entries, but the network has " + std::to_string(dimensions) +
                          " dimensions; give one algorithm per dimension.");
    }
    std::vector<Implementation> list;
    for (const std::string& name : names) {
        list.push_back(parse(name, key));
        if (list.back().whole) break;
    }
    return list;
}

}  // namespace

const char* name_of(Collective kind) { return kNames[static_cast<std::size_t>(kind)]; }

Implementations::Implementations(const Config& config)
    : config_(config),
      custom_{&config.all_reduce_implementation_custom, &config.reduce_scatter_implementation_custom,
              &config.all_gather_implementation_custom, &config.all_to_all_implementation_custom} {
    const std::array<const std::vector<std::string>*, kConfigured> native = {
        &config.all_reduce_implementation, &config.reduce_scatter_implementation,
        &config.all_gather_implementation, &config.all_to_all_implementation};
    for (std::size_t kind = 0; kind < kConfigured; ++kind) {
        native_[kind] = parse_list(*native[kind], config.topology.size(), key_of(kind));
        if (custom_[kind]->size() > 1) {
            throw ConfigError("'" + key_of(kind) +
                              "-custom' has several entries; one custom algorithm covers all dimensions.");
        }
    }
}

Choice Implementations::choose(Collective kind, std::uint64_t node) const {
    const auto index = static_cast<std::size_t>(kind);
    const auto single = config_.per_node_custom_implementation.find(static_cast<std::int64_t>(node));
    if (single != config_.per_node_custom_implementation.end()) return {nullptr, &single->second};
    if (!custom_[index]->empty()) return {nullptr, &custom_[index]->front()};
    if (!native_[index].empty()) return {&native_[index], nullptr};
    throw ConfigError("Node " + std::to_string(node) + " is an " + name_of(kind) +
                      ", but the system configuration has no '" + key_of(index) +
                      "'; add one algorithm per dimension.");
}

}  // namespace chakrascope
