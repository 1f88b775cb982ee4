#include "order.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <unordered_map>
#include <utility>

namespace chakrascope::converter {
namespace {

std::size_t at(std::int64_t value) { return static_cast<std::size_t>(value); }

}  // namespace

std::vector<std::int64_t> order_by_dependency(std::span<const std::int64_t> priority,
                                              const Dependencies& waits) {
    const std::size_t count = priority.size();
    std::vector<std::int64_t> waiting(count), first(count + 1, 0);
    for (std::size_t node = 0; node < count; ++node)
        waiting[node] = waits.bounds[node + 1] - waits.bounds[node];
    for (const std::int64_t source : waits.source) ++first[at(source) + 1];
    for (std::size_t node = 0; node < count; ++node) first[node + 1] += first[node];
    std::vector<std::int64_t> followers(waits.source.size()), filled(first.begin(), first.end() - 1);
    for (std::size_t node = 0; node < count; ++node) {
        for (std::int64_t i = waits.bounds[node]; i < waits.bounds[node + 1]; ++i)
            followers[at(filled[at(waits.source[at(i)])]++)] = static_cast<std::int64_t>(node);
    }
    using Ready = std::pair<std::int64_t, std::int64_t>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    for (std::size_t node = 0; node < count; ++node) {
        if (waiting[node] == 0) ready.emplace(priority[node], node);
    }
    std::vector<std::int64_t> order;
    order.reserve(count);
    while (!ready.empty()) {
        const std::int64_t node = ready.top().second;
        ready.pop();
        order.push_back(node);
        for (std::int64_t i = first[at(node)]; i < first[at(node) + 1]; ++i) {
            const std::int64_t follower = followers[at(i)];
            if (--waiting[at(follower)] == 0) ready.emplace(priority[at(follower)], follower);
        }
    }
    return order;
}

Times replay(std::span<const std::int64_t> turns, std::span<const std::int64_t> lane,
             std::span<const std::int64_t> duration_ns, const Dependencies& waits) {
    Times times{std::vector<std::int64_t>(lane.size()), std::vector<std::int64_t>(lane.size())};
    const std::int64_t lanes = lane.empty() ? 0 : *std::max_element(lane.begin(), lane.end()) + 1;
    std::vector<std::int64_t> free_ns(at(lanes), 0);
    for (const std::int64_t turn : turns) {
        const std::size_t node = at(turn);
        std::int64_t ready = free_ns[at(lane[node])];
        for (std::int64_t i = waits.bounds[node]; i < waits.bounds[node + 1]; ++i)
            ready = std::max(ready, times.end_ns[at(waits.source[at(i)])]);
        times.start_ns[node] = ready;
        // Files of other writers may contain any duration, so the sum may wrap around, as in NumPy.
        const auto end = static_cast<std::uint64_t>(ready) + static_cast<std::uint64_t>(duration_ns[node]);
        times.end_ns[node] = free_ns[at(lane[node])] = static_cast<std::int64_t>(end);
    }
    return times;
}

Pairs last_writers(const Accesses& accesses) {
    Pairs pairs;
    std::unordered_map<std::int64_t, std::int64_t> writer;
    std::vector<std::int64_t> sources;
    for (std::size_t access = 0; 2 * access < accesses.reads.size(); ++access) {
        const auto number = static_cast<std::int64_t>(access);
        sources.clear();
        for (std::int64_t i = accesses.reads[2 * access]; i < accesses.reads[2 * access + 1]; ++i) {
            const auto known = writer.find(accesses.storages[at(i)]);
            if (known != writer.end()) sources.push_back(known->second);
        }
        std::sort(sources.begin(), sources.end());
        sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
        for (const std::int64_t source : sources) {
            pairs.source.push_back(source);
            pairs.target.push_back(number);
        }
        const auto read = accesses.storages.subspan(
            at(accesses.reads[2 * access]), at(accesses.reads[2 * access + 1] - accesses.reads[2 * access]));
        for (std::int64_t i = accesses.writes[2 * access]; i < accesses.writes[2 * access + 1]; ++i) {
            const std::int64_t storage = accesses.storages[at(i)];
            const bool unchanged =
                accesses.views[access] != 0 && std::find(read.begin(), read.end(), storage) != read.end();
            if (!unchanged) writer[storage] = number;
        }
    }
    return pairs;
}

}  // namespace chakrascope::converter
