#include "gpus.h"

#include <algorithm>

#include "../errors.h"

namespace chakrascope::engine {
namespace {

constexpr std::int64_t kLatestNs = std::int64_t{9'000'000'000'000};

Time whole_ns(gpu::Fs time) { return static_cast<Time>((time + gpu::kFsPerNs - 1) / gpu::kFsPerNs); }

}  // namespace

Gpus::Gpus(const GpuConfig& config, std::int32_t ranks, bool fold, EventQueue& events)
    : config_(config),
      events_(events),
      copies_(fold ? copies(config, ranks) : 1),
      period_(ranks / copies_),
      devices_(config.machine, ranks, {config.detailed, false}, copies_),
      begun_(static_cast<std::size_t>(ranks)),
      use_(static_cast<std::size_t>(ranks)) {
    for (const GpuCollective& collective : config.collectives)
        collectives_[{collective.kind, collective.group, collective.bytes}] = &collective;
    events_.set_source<&Gpus::advance>(this);
}

// Return how many ranks are in step, if all collectives have programs for this many copies of the ranks.
// Links between GPUs without a switch lead to different ports of each GPU.
std::int32_t Gpus::copies(const GpuConfig& config, std::int32_t ranks) {
    std::size_t copies = 0;
    for (const GpuCollective& collective : config.collectives) {
        if (collective.program == nullptr) continue;
        if (copies == 0) copies = collective.program->copies;
        const bool all = static_cast<std::int32_t>(collective.members.size()) == ranks &&
                         std::is_sorted(collective.members.begin(), collective.members.end());
        if (!all || collective.program->copies != copies) return 1;
    }
    const bool possible = !config.detailed && !config.machine.direct;
    return possible ? std::max(1, static_cast<std::int32_t>(copies)) : 1;
}

std::optional<std::uint64_t> Gpus::begin(std::int32_t rank, const What& what, Pending pending) {
    const std::pair place{rank % period_, begun_[static_cast<std::size_t>(rank)]++};
    const auto [entry, is_first] = joints_.try_emplace(place);
    Joint& joint = entry->second;
    if (is_first)
        joint = {what, ids_++, 0};
    else if (joint.what != what)
        lose_step();
    const std::uint64_t id = joint.id;
    pending_[id].push_back(std::move(pending));
    if (++joint.ranks == copies_) joints_.erase(entry);
    return is_first ? std::optional(id) : std::nullopt;
}

void Gpus::lose_step() {
    out_of_step_ = true;
    events_.stop();
}

gpu::Fs Gpus::now() const {
    const auto now = static_cast<std::int64_t>(events_.now());
    if (now > kLatestNs) {
        throw ConfigError(
            "The simulated time exceeds the 2.5 hours that the GPU model can count; simulate fewer steps.");
    }
    return now * gpu::kFsPerNs;
}

bool Gpus::collective(const Node& node, std::int32_t rank, Callback done) {
    const Key key{static_cast<int>(node.comm_type), node.group, node.comm_size};
    const auto known = collectives_.find(key);
    if (known == collectives_.end()) {
        throw ConfigError("Node " + std::to_string(node.id) + " ('" + node.name + "') of rank " +
                          std::to_string(rank) +
                          " is a collective that the GPU model has no program for; give one with "
                          "--algorithm, or use the backend 'flow'.");
    }
    const GpuCollective& collective = *known->second;
    const auto& members = collective.members;
    if (collective.program == nullptr) return false;
    const auto member = std::find(members.begin(), members.end(), rank) - members.begin();
    const std::uint64_t turn = turns_[{key, rank}]++;
    auto& meeting = meetings_[{key, turn}];
    if (meeting == nullptr) {
        meeting = std::make_shared<Meeting>();
        meeting->run = std::make_shared<gpu::Run>(collective.program, members, copies_ > 1);
        meeting->missing = members.size();
    }
    // Events of one instant come in another order if one of the ranks in step is simulated.
    if (meeting->rank < 0 || events_.now() > meeting->arrived || rank < meeting->rank) {
        meeting->last = events_.origin();
        meeting->arrived = events_.now();
        meeting->rank = rank;
    }
    const auto id = begin(rank, std::tuple_cat(key, std::tuple(events_.now())),
                          {done, events_.origin(), meeting, -1, 0, 0});
    if (id) devices_.launch(meeting->run, static_cast<std::int32_t>(member) % period_, now(), *id);
    if (--meeting->missing == 0) meetings_.erase({key, turn});
    return true;
}

void Gpus::compute(std::int32_t rank, Time duration, std::uint64_t bytes, Callback done) {
    const double speed = config_.machine.memory_bytes_per_ns;
    const double share = bytes == 0 || duration == 0
                             ? config_.machine.compute_memory_share
                             : static_cast<double>(bytes) / (static_cast<double>(duration) * speed);
    const auto id = begin(rank, {-1, static_cast<std::int64_t>(duration), bytes, events_.now()},
                          {done, events_.origin(), nullptr, rank, events_.now(), duration});
    if (!id) return;
    devices_.compute(rank % period_, static_cast<gpu::Fs>(duration) * gpu::kFsPerNs, std::min(share, 1.0),
                     now(), *id);
}

void Gpus::transfer(std::int32_t from, std::int32_t to, std::uint64_t bytes, Callback done) {
    if (copies_ > 1) return lose_step();
    const std::uint64_t id = ids_++;
    pending_[id] = {{done, events_.origin(), nullptr, -1, 0, 0}};
    devices_.transfer(from, to, bytes, now(), id);
}

// Advance the GPUs up to the limit, and return whether any operation has ended.
bool Gpus::advance(std::int64_t limit) {
    if (pending_.empty()) return false;
    if (copies_ > 1 && !joints_.empty()) lose_step();
    if (out_of_step_) return false;
    bool cancelled = false;
    const auto keep_going = [&](gpu::Fs reached) {
        cancelled = !events_.keep_going(whole_ns(reached));
        return !cancelled;
    };
    const gpu::Fs until = limit >= 0 && limit < kLatestNs ? limit * gpu::kFsPerNs : -1;
    const auto& completions = devices_.advance(until, keep_going);
    for (const gpu::Completion& completion : completions) end(completion.id, completion.time);
    if (completions.empty() && until < 0 && !cancelled) {
        for (const gpu::Stuck& stuck : devices_.stuck()) {
            const Pending& pending = pending_.at(stuck.kernel).front();
            // A GPU program that waits for a rank that has not arrived is not in a deadlock.
            if (pending.meeting != nullptr && pending.meeting->missing == 0) refuse_deadlock(stuck);
        }
    }
    return !completions.empty();
}

void Gpus::end(std::uint64_t id, gpu::Fs time) {
    const auto entry = pending_.find(id);
    const std::vector<Pending> all = std::move(entry->second);
    pending_.erase(entry);
    const Time at = std::max(whole_ns(time), events_.now());
    for (const Pending& pending : all) {
        if (pending.rank >= 0) {
            GpuUse& use = use_[static_cast<std::size_t>(pending.rank)];
            use.compute_ns += at - pending.started;
            use.alone_ns += pending.alone;
        }
        events_.set_origin(pending.meeting ? pending.meeting->last : pending.origin);
        events_.at(at, pending.done);
    }
}

void Gpus::refuse_deadlock(const gpu::Stuck& stuck) const {
    const Pending& pending = pending_.at(stuck.kernel).front();
    const std::string& name = pending.meeting->run->program->name;
    const std::string who = "Thread block " + std::to_string(stuck.workgroup) + " of rank " +
                            std::to_string(pending.meeting->run->gpu(stuck.member)) + " in '" + name + "'";
    if (stuck.place == gpu::kNone) {
        throw BackendError(who +
                           " finds no free compute unit, as all thread blocks that have one wait for "
                           "others: a deadlock. Use programs with fewer thread blocks, or raise "
                           "compute.workgroups_per_unit of the machine.");
    }
    throw BackendError(who + " waits for ever; 'chakrascope algorithm prove' shows why.");
}

}  // namespace chakrascope::engine
