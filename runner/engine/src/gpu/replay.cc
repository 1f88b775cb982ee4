#include "replay.h"

#include <numeric>

#include "../errors.h"
#include "detailed.h"

namespace chakrascope::gpu {

namespace {

// Repeat the results of the first copy of a program for the others, whose ranks follow in steps of `ranks`.
void add_copies(Replay& result, std::int32_t copies, std::int32_t ranks) {
    const auto repeat = [&](auto& items) {
        const std::size_t count = items.size();
        for (std::int32_t copy = 1; copy < copies; ++copy) {
            for (std::size_t number = 0; number < count; ++number) {
                auto item = items[number];
                item.member += copy * ranks;
                items.push_back(item);
            }
        }
    };
    repeat(result.stamps);
    repeat(result.stuck);
    const auto times = static_cast<std::uint64_t>(copies);
    Counts& counts = result.counts;
    for (std::uint64_t* count : {&counts.asked_lines, &counts.loaded_lines, &counts.stored_lines,
                                 &counts.delivered_lines, &counts.controls, &counts.transfers})
        *count *= times;
}

}  // namespace

Replay replay(const Machine& machine, const Program& program, const Settings& settings,
              const std::function<bool(std::int64_t, std::int32_t)>& progress) {
    const auto ranks = static_cast<std::int32_t>(program.size());
    const bool in_step = !settings.detailed && !machine.direct;
    const std::int32_t copies = in_step ? static_cast<std::int32_t>(program.copies) : 1;
    Devices devices(machine, ranks, settings, copies);
    std::vector<std::int32_t> members(program.size());
    std::iota(members.begin(), members.end(), 0);
    const auto run = std::make_shared<Run>(std::make_shared<const Program>(program), members, in_step);
    Replay result;
    result.rank_end.assign(program.size(), -1);
    for (std::int32_t rank = 0; rank < ranks / copies; ++rank)
        devices.launch(run, rank, 0, static_cast<std::uint64_t>(rank));
    bool cancelled = false;
    std::int32_t ended = 0;
    const auto keep_going = [&](Fs now) {
        cancelled = progress && !progress(to_ns(now), ended);
        return !cancelled;
    };
    for (;;) {
        const auto& completions = devices.advance(-1, keep_going);
        if (cancelled) throw engine::Cancelled("The simulation was cancelled.");
        if (completions.empty()) break;
        for (const Completion& completion : completions) {
            for (std::size_t rank = completion.id; rank < result.rank_end.size();
                 rank += static_cast<std::size_t>(ranks / copies))
                result.rank_end[rank] = completion.time;
            ended += copies;
        }
    }
    result.stamps = devices.stamps();
    result.links = devices.links();
    result.stuck = devices.stuck();
    result.counts = devices.counts();
    add_copies(result, copies, ranks / copies);
    result.events = devices.events();
    if (const auto* detailed = dynamic_cast<const DetailedFabric*>(&devices.fabric())) {
        result.least_credit = detailed->on_chip().least_credit();
        result.most_credit = detailed->on_chip().most_credit();
    }
    return result;
}

}  // namespace chakrascope::gpu
