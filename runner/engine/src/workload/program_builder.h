// Builds a program from nodes that are added one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "program.h"

namespace chakrascope::engine {

class ProgramBuilder {
  public:
    // `source` is the name of the program in error messages.
    explicit ProgramBuilder(std::string source) : source_(std::move(source)) {}

    void reserve(std::size_t nodes);
    // Add a node. The ids of nodes must be ascending. The dependencies of the node are sorted in place.
    void add(RawNode& raw);
    // Return the program. Raises DependencyError if a node depends on a missing node, or if no node can
    // start.
    Program build();

  private:
    struct FactsHash {
        std::size_t operator()(const Facts& facts) const;
    };
    struct Known {
        std::uint32_t name;
        std::unordered_map<std::uint32_t, std::uint32_t> kinds;  // kinds with this name, by facts
        std::uint32_t last_facts;
    };

    std::uint32_t kind_of(const Node& node);
    std::uint32_t facts_of(const Node& node, std::uint32_t guess);
    void set_kind(std::uint32_t kind);
    void set_duration(const Node& node);
    void link();
    std::uint32_t index_of(std::uint64_t id, std::uint32_t child) const;
    void assign_slots();

    const std::string source_;
    Program program_;
    std::unordered_map<std::string, Known> names_;
    std::unordered_map<Facts, std::uint32_t, FactsHash> facts_;
    std::vector<std::uint64_t> parents_;  // dependencies of all nodes, concatenated
};

}  // namespace chakrascope::engine
