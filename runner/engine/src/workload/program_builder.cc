#include "program_builder.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "../errors.h"

namespace chakrascope::engine {

std::size_t ProgramBuilder::FactsHash::operator()(const Facts& facts) const {
    std::uint64_t mixed = 0;
    const auto add = [&mixed](auto value) {
        mixed = (mixed ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15ULL;
        mixed ^= mixed >> 32;
    };
    add(facts.type);
    add(facts.is_cpu);
    add(facts.work);
    add(facts.comm_type);
    add(facts.involved_dims);
    add(facts.has);
    for (const std::uint64_t number : {facts.num_ops, facts.tensor_size, facts.comm_size}) add(number);
    for (const std::int64_t number :
         {facts.comm_src, facts.comm_dst, facts.comm_tag, facts.group, facts.comm_priority, facts.stream})
        add(number);
    for (const std::uint64_t split : facts.comm_splits) add(split);
    return mixed;
}

void ProgramBuilder::reserve(std::size_t nodes) { program_.nodes_.reserve(nodes); }

void ProgramBuilder::add(RawNode& raw) {
    const Node& node = raw.node;
    Program& program = program_;
    const std::uint32_t place = program.size();
    if (place == 0) program.first_id_ = node.id;
    if (program.ids_.empty() && node.id != program.first_id_ + place) {
        for (std::uint32_t i = 0; i < place; ++i) program.ids_.push_back(program.first_id_ + i);
    }
    if (!program.ids_.empty() || node.id != program.first_id_ + place) program.ids_.push_back(node.id);
    program.nodes_.emplace_back();
    set_kind(kind_of(node));
    set_duration(node);
    auto& parents = raw.parents;
    std::sort(parents.begin(), parents.end());
    parents.erase(std::unique(parents.begin(), parents.end()), parents.end());
    const bool many = parents.size() >= Program::kManyWaits;
    program.nodes_.back().waits = many ? Program::kManyWaits : static_cast<std::uint8_t>(parents.size());
    if (many) program.many_waits_[place] = static_cast<std::uint32_t>(parents.size());
    parents_.insert(parents_.end(), parents.begin(), parents.end());
}

// Set the kind of the most recently added node.
void ProgramBuilder::set_kind(std::uint32_t kind) {
    auto& many = program_.many_kinds_;
    if (kind >= Program::kMostKinds && many.empty()) {
        for (const Program::Own& own : program_.nodes_) many.push_back(own.kind);
        many.pop_back();
    }
    if (kind >= Program::kMostKinds || !many.empty()) many.push_back(kind);
    program_.nodes_.back().kind = static_cast<std::uint16_t>(kind);
}

std::uint32_t ProgramBuilder::kind_of(const Node& node) {
    const auto [known, fresh_name] = names_.try_emplace(node.name);
    Known& of_name = known->second;
    if (fresh_name) {
        of_name.name = static_cast<std::uint32_t>(program_.name_ends_.size());
        of_name.last_facts = 0;
        program_.names_ += node.name;
        program_.name_ends_.push_back(program_.names_.size());
    }
    of_name.last_facts = facts_of(node, of_name.last_facts);
    const auto [kind, fresh] =
        of_name.kinds.try_emplace(of_name.last_facts, static_cast<std::uint32_t>(program_.kinds_.size()));
    if (fresh) program_.kinds_.push_back({of_name.name, of_name.last_facts, kNoSlot, kNoSlot});
    return kind->second;
}

// Return the index of a node's facts. Nodes with the same name usually have the same facts, so
// `guess` is checked first.
std::uint32_t ProgramBuilder::facts_of(const Node& node, std::uint32_t guess) {
    const Facts& facts = node;
    if (guess < program_.facts_.size() && program_.facts_[guess] == facts) return guess;
    const auto [known, fresh] = facts_.try_emplace(facts, static_cast<std::uint32_t>(program_.facts_.size()));
    if (fresh) program_.facts_.push_back(facts);
    return known->second;
}

void ProgramBuilder::set_duration(const Node& node) {
    constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max();
    const bool has_ns = (node.has & kHasDurationNs) != 0;
    const std::uint64_t value = has_ns ? node.duration_ns : node.duration_micros;
    const auto apart = has_ns ? static_cast<std::int64_t>(node.duration_micros - node.duration_ns / 1000) : 0;
    const bool fits = value <= kMost && apart > Program::kLongDuration && apart <= 127;
    if (!fits) program_.long_[program_.size() - 1] = {node.duration_micros, node.duration_ns};
    program_.nodes_.back().duration = fits ? static_cast<std::uint32_t>(value) : 0;
    program_.nodes_.back().micros_apart = fits ? static_cast<std::int8_t>(apart) : Program::kLongDuration;
}

Program ProgramBuilder::build() {
    link();
    assign_slots();
    bool starts = program_.size() == 0;
    for (std::uint32_t i = 0; i < program_.size() && !starts; ++i) starts = program_.waits(i) == 0;
    if (!starts) {
        throw DependencyError(
            source_ +
            ": every node waits for another one, so that none can start. Remove the dependency cycle.");
    }
    return std::move(program_);
}

void ProgramBuilder::link() {
    const std::uint32_t count = program_.size();
    auto& offset = program_.child_offset_;
    offset.assign(count + std::size_t{1}, 0);
    std::vector<std::uint32_t> parents;
    parents.reserve(parents_.size());
    std::size_t next = 0;
    for (std::uint32_t child = 0; child < count; ++child) {
        for (std::uint32_t left = program_.waits(child); left > 0; --left) {
            parents.push_back(index_of(parents_[next++], child));
            ++offset[parents.back() + 1];
        }
    }
    parents_ = {};
    for (std::uint32_t i = 0; i < count; ++i) offset[i + 1] += offset[i];
    program_.children_.resize(parents.size());
    std::vector<std::uint32_t> place(offset.begin(), offset.end());
    next = 0;
    for (std::uint32_t child = 0; child < count; ++child) {
        for (std::uint32_t left = program_.waits(child); left > 0; --left)
            program_.children_[place[parents[next++]]++] = child;
    }
}

std::uint32_t ProgramBuilder::index_of(std::uint64_t id, std::uint32_t child) const {
    const std::uint64_t guess = id - program_.first_id_;  // the right index if ids are consecutive
    if (guess < program_.size() && program_.id(static_cast<std::uint32_t>(guess)) == id)
        return static_cast<std::uint32_t>(guess);
    const auto& ids = program_.ids_;
    const auto place = std::lower_bound(ids.begin(), ids.end(), id);
    if (place == ids.end() || *place != id) {
        throw DependencyError(source_ + ": node " + std::to_string(program_.id(child)) + " depends on node " +
                              std::to_string(id) + ", which is not in the file. Convert the traces again.");
    }
    return static_cast<std::uint32_t>(place - ids.begin());
}

// Assign slots to facts. Lanes and facts are numbered in the order of their first nodes.
void ProgramBuilder::assign_slots() {
    std::map<std::pair<bool, std::int64_t>, std::uint16_t> lanes;
    std::vector<std::pair<std::uint16_t, std::uint16_t>> slots;
    for (const Facts& facts : program_.facts_) {
        const std::uint16_t astra = facts.is_cpu                   ? kCpuSlot
                                    : facts.type == NodeType::Comp ? kGpuSlot
                                    : facts.type == NodeType::Recv ? kNoSlot
                                                                   : kCommSlot;
        std::uint16_t trace = kNoSlot;
        if (facts.type != NodeType::Recv) {
            const bool streamed = (facts.has & kHasStream) != 0;
            const std::pair<bool, std::int64_t> key{streamed, streamed ? facts.stream : astra};
            trace = lanes.try_emplace(key, lanes.size() + 1).first->second;
        }
        slots.emplace_back(astra, trace);
    }
    for (Program::Kind& kind : program_.kinds_)
        std::tie(kind.slot_astra, kind.slot_trace) = slots[kind.facts];
    program_.lanes_ = static_cast<std::uint16_t>(lanes.size() + 1);
}

}  // namespace chakrascope::engine
