#include "implementation.h"

#include <charconv>

#include "../errors.h"

namespace chakrascope::engine {
namespace {

constexpr std::array<const char*, 8> kNames = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                               "broadcast",  "reduce",         "gather",     "scatter"};

struct Named {
    const char* name;
    Implementation::Algorithm algorithm;
    bool whole = false;
    bool windowed = false;
};

// All collective algorithms except custom algorithms, which are read from files.
constexpr std::array<Named, 7> kAlgorithms = {{
    {"ring", Implementation::Algorithm::Ring},
    {"direct", Implementation::Algorithm::Direct, false, true},
    {"halvingDoubling", Implementation::Algorithm::HalvingDoubling},
    {"doubleBinaryTree", Implementation::Algorithm::DoubleBinaryTree},
    {"oneRing", Implementation::Algorithm::Ring, true},
    {"oneDirect", Implementation::Algorithm::Direct, true, true},
    {"oneHalvingDoubling", Implementation::Algorithm::HalvingDoubling, true},
}};

std::string key_of(std::size_t kind) {
    return key_name_of(static_cast<Collective>(kind)) + "-implementation";
}

// Read the window of a direct algorithm (its number of concurrent peers) from the first five characters
// after the algorithm's name, as ASTRA-sim does.
std::int32_t read_window(std::string_view text, const std::string& name) {
    if (text.empty()) return -1;
    std::int32_t window = 0;
    const std::string_view digits = text.substr(0, 5);
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), window);
    const bool number = problem == std::errc() &&
                        text.find_first_not_of("0123456789", static_cast<std::size_t>(end - text.data())) ==
                            std::string_view::npos;
    if (!number || window == 0 || window < -1) {
        throw ConfigError(
            "The collective algorithm '" + name +
            "' has no valid window; write 'direct' for all peers or 'direct4' for four at a time.");
    }
    return window;
}

// Return the list of algorithms for error messages: "ring, direct, directN, ... and
// oneHalvingDoubling".
std::string known_algorithms() {
    std::string known;
    for (const Named& each : kAlgorithms) {
        if (!known.empty()) known += &each == &kAlgorithms.back() ? " and " : ", ";
        known += each.name;
        if (each.windowed) known += std::string(", ") + each.name + "N";
    }
    return known;
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
        list.push_back(parse_algorithm(name, key));
        if (list.back().whole) break;
    }
    return list;
}

}  // namespace

const char* name_of(Collective kind) { return kNames[static_cast<std::size_t>(kind)]; }

std::string key_name_of(Collective kind) {
    std::string key = name_of(kind);
    for (char& letter : key) letter = letter == '_' ? '-' : letter;
    return key;
}

Implementation parse_algorithm(const std::string& name, const std::string& key) {
    for (const Named& each : kAlgorithms) {
        const std::string_view known = each.name;
        if (name == known) return {each.algorithm, -1, each.whole};
        if (each.windowed && name.starts_with(known))
            return {each.algorithm, read_window(std::string_view(name).substr(known.size()), name),
                    each.whole};
    }
    throw ConfigError("'" + key + "' names the unknown algorithm '" + name + "'; known are " +
                      known_algorithms() + ".");
}

std::vector<std::string> algorithm_names(bool whole) {
    std::vector<std::string> names;
    for (const Named& each : kAlgorithms) {
        if (each.whole == whole) names.emplace_back(each.name);
    }
    return names;
}

std::vector<std::string> windowed_algorithms() {
    std::vector<std::string> names;
    for (const Named& each : kAlgorithms) {
        if (each.windowed) names.emplace_back(each.name);
    }
    return names;
}

Implementations::Implementations(const Config& config)
    : config_(config),
      custom_{&config.all_reduce_implementation_custom, &config.reduce_scatter_implementation_custom,
              &config.all_gather_implementation_custom, &config.all_to_all_implementation_custom} {
    const std::array<const std::vector<std::string>*, kConfigured> native = {
        &config.all_reduce_implementation, &config.reduce_scatter_implementation,
        &config.all_gather_implementation, &config.all_to_all_implementation};
    for (const CollectiveProgram& program : config.collective_programs) {
        programs_[{program.collective, program.members, program.size}] = &program.name;
    }
    for (std::size_t kind = 0; kind < kConfigured; ++kind) {
        native_[kind] = parse_list(*native[kind], config.topology.size(), key_of(kind));
        if (custom_[kind]->size() > 1) {
            throw ConfigError("'" + key_of(kind) +
                              "-custom' has several entries; one custom algorithm covers all dimensions.");
        }
    }
}

const std::string* Implementations::program(Collective kind, std::int64_t members, std::uint64_t size) const {
    if (programs_.empty() || is_rooted(kind)) return nullptr;
    const auto found = programs_.find({key_name_of(kind), members, size});
    return found == programs_.end() ? nullptr : found->second;
}

Choice Implementations::choose(Collective kind, std::uint64_t node) const {
    const auto index = static_cast<std::size_t>(kind);
    const auto single = config_.per_node_custom_implementation.find(static_cast<std::int64_t>(node));
    if (single != config_.per_node_custom_implementation.end()) return {nullptr, &single->second};
    if (!custom_[index]->empty()) return {nullptr, &custom_[index]->front()};
    if (!native_[index].empty()) return {&native_[index], nullptr};
    throw ConfigError("Node " + std::to_string(node) + " asks for " + name_of(kind) +
                      ", but the system configuration has no '" + key_of(index) +
                      "'; add one algorithm per dimension.");
}

}  // namespace chakrascope::engine
