// Compares the engine's containers with simple reference implementations, on many random inputs.
//
// The argument is the name of the container. Exits with 1 and prints the violated property.
// test_containers.py builds this program.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "agenda.h"
#include "flow/ends.h"
#include "flow/id_cache.h"
#include "flow/sharing.h"

namespace {

using namespace chakrascope::engine;
using Random = std::mt19937_64;

bool expect(bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "does not hold: %s\n", what);
    return holds;
}

std::uint64_t below(Random& random, std::uint64_t bound) { return random() % bound; }

// Events leave the agenda in order of time. Events of one tick keep their order of insertion, even if
// they are added while the tick runs.
bool agenda() {
    bool holds = true;
    for (std::uint64_t seed = 0; seed < 200 && holds; ++seed) {
        Random random(seed);
        Agenda<int> queue;
        std::vector<std::pair<std::uint64_t, int>> waiting;  // the reference, which is searched linearly
        int number = 0;
        const auto add = [&](std::uint64_t from) {
            const std::uint64_t time =
                from + (below(random, 4) == 0 ? 0 : random() >> (1 + below(random, 63)));
            queue.add(time, number);
            waiting.emplace_back(time, number++);
        };
        for (std::uint64_t events = 1 + below(random, 40); events > 0; --events) add(0);
        while (!waiting.empty() && holds) {
            const auto first = std::ranges::min_element(
                waiting, [](const auto& one, const auto& other) { return one.first < other.first; });
            const std::uint64_t time = first->first;
            holds = expect(!queue.empty() && queue.next() == time, "an agenda's next tick is the earliest");
            queue.open();
            holds = holds && expect(queue.present() == time, "the tick that was opened is the present");
            for (std::size_t place = 0; place < queue.size() && holds; ++place) {
                const auto due = std::ranges::find(waiting, time, &std::pair<std::uint64_t, int>::first);
                holds = expect(due != waiting.end() && due->second == queue.event(place),
                               "events of a tick come in the order they were added");
                if (holds) waiting.erase(due);
                if (number < 80 && time < std::uint64_t{1} << 62 && below(random, 3) == 0) add(time);
            }
            queue.close();
            if (!waiting.empty() && number < 80 && time < std::uint64_t{1} << 62 && below(random, 3) == 0) {
                queue.next();
                add(time);  // the time may be earlier than the next event
            }
        }
        holds = holds && expect(queue.empty(), "an agenda is empty when all events were taken");
    }
    return holds;
}

// The winner of the tournament tree has the earliest time, and on a tie the lowest number.
bool ends() {
    bool holds =
        expect(flow::Ends().first_time() == flow::Ends::kNever, "nobody ends in an empty tournament");
    for (std::uint64_t seed = 0; seed < 200 && holds; ++seed) {
        Random random(seed);
        flow::Ends tournament;
        std::vector<double> times;
        for (int turn = 0; turn < 100 && holds; ++turn) {
            const auto player = static_cast<std::uint32_t>(below(random, 1 + below(random, 50)));
            const double time =
                below(random, 5) == 0 ? flow::Ends::kNever : static_cast<double>(below(random, 20));
            if (times.size() <= player) times.resize(player + 1, flow::Ends::kNever);
            times[player] = time;
            if (below(random, 2) == 0) {
                tournament.set(player, time);
            } else {
                tournament.put(player, time);
                tournament.replay();
            }
            const auto least = std::ranges::min_element(times);
            holds =
                expect(tournament.size() == times.size(), "a tournament has as many players as were set") &&
                expect(tournament.first_time() == *least, "the first to end has the least time") &&
                expect(*least == flow::Ends::kNever ||
                           tournament.first() == static_cast<std::uint32_t>(least - times.begin()),
                       "of equal times the lowest number wins");
        }
    }
    return holds;
}

// Ids in use keep their values. The id that has been idle longest is reused first.
bool kept() {
    bool holds = true;
    Random random(7);
    flow::IdCache cache;
    std::vector<std::uint64_t> values;  // values by id
    std::vector<int> holders;
    for (int turn = 0; turn < 60'000 && holds; ++turn) {
        const std::uint64_t value = below(random, 20'000);
        const std::uint64_t hash = value / 3;  // values share hashes
        std::uint32_t number =
            cache.find(hash, [&](std::uint32_t candidate) { return values[candidate] == value; });
        if (number == flow::IdCache::kNone) {
            const bool held =
                std::ranges::any_of(std::views::iota(std::size_t{0}, values.size()),
                                    [&](auto place) { return holders[place] > 0 && values[place] == value; });
            holds = expect(!held, "a value that is held is found");
            number = cache.put(hash);
            if (number >= values.size()) {
                values.resize(number + 1);
                holders.resize(number + 1);
            }
            holds = holds && expect(holders[number] == 0, "a number that is held is not given away");
            values[number] = value;
        }
        cache.hold(number);
        ++holders[number];
        if (below(random, 50) != 0) {
            cache.release(number);
            --holders[number];
        }
    }
    const auto held = std::ranges::count_if(holders, [](int count) { return count > 0; });
    return holds &&
           expect(values.size() <= std::max<std::size_t>(4097, 2 * static_cast<std::size_t>(held) + 1),
                  "there are at most twice as many numbers as are held");
}

struct Job {
    std::vector<std::uint32_t> path;
    int flows;
};

// Return max-min fair rates, by repeatedly filling the fullest link first.
std::vector<double> fair(const std::vector<double>& capacities, const std::vector<Job>& jobs) {
    std::vector<double> rates(jobs.size(), 0);
    std::vector<bool> settled(jobs.size(), false);
    std::vector<double> left = capacities;
    while (true) {
        double least = std::numeric_limits<double>::infinity();
        std::uint32_t fullest = 0;
        for (std::uint32_t link = 0; link < left.size(); ++link) {
            int sharers = 0;
            for (std::size_t job = 0; job < jobs.size(); ++job)
                if (!settled[job] && std::ranges::count(jobs[job].path, link) > 0) sharers += jobs[job].flows;
            if (sharers > 0 && left[link] / sharers < least) {
                least = left[link] / sharers;
                fullest = link;
            }
        }
        if (std::isinf(least)) return rates;
        for (std::size_t job = 0; job < jobs.size(); ++job) {
            if (settled[job] || std::ranges::count(jobs[job].path, fullest) == 0) continue;
            settled[job] = true;
            rates[job] = least;
            for (const std::uint32_t link : jobs[job].path) left[link] -= least * jobs[job].flows;
        }
    }
}

// Rates are max-min fair after every change of the active flows, without acknowledgements and windows.
bool sharing() {
    bool holds = true;
    for (std::uint64_t seed = 0; seed < 300 && holds; ++seed) {
        Random random(seed);
        std::vector<double> capacities;
        std::vector<flow::Line> lines;
        for (std::uint64_t count = 2 + below(random, 6); count > 0; --count) {
            capacities.push_back(1e-4 * static_cast<double>(100 + below(random, 300)));
            lines.push_back({capacities.back(), 0, false});
        }
        flow::Sharing rates(lines);
        std::vector<Job> jobs;
        for (std::uint64_t count = 1 + below(random, 10); count > 0; --count) {
            std::vector<std::uint32_t> path;
            for (std::uint32_t link = 0; link < capacities.size(); ++link)
                if (below(random, 2) == 0) path.push_back(link);
            if (path.empty()) path.push_back(0);
            rates.add();
            rates.set_path(static_cast<std::uint32_t>(jobs.size()), path, {}, {1, 0, 1});
            jobs.push_back({path, 0});
        }
        for (int turn = 0; turn < 30 && holds; ++turn) {
            const std::size_t job = below(random, jobs.size());
            if (jobs[job].flows > 0 && below(random, 3) == 0) {
                rates.leave(static_cast<std::uint32_t>(job));
                --jobs[job].flows;
            } else {
                rates.join(static_cast<std::uint32_t>(job));
                ++jobs[job].flows;
            }
            rates.solve();
            std::vector<Job> active = jobs;
            std::erase_if(active, [](const Job& each) { return each.flows == 0; });
            const std::vector<double> expected = fair(capacities, active);
            holds = expect(rates.active() == active.size(), "bundles with flows are active");
            std::size_t place = 0;
            for (std::size_t number = 0; number < jobs.size() && holds; ++number) {
                if (jobs[number].flows == 0) continue;
                const double rate = rates.rate(static_cast<std::uint32_t>(number));
                holds = expect(std::abs(rate - expected[place]) <= 1e-6 * expected[place], "rates are fair");
                ++place;
            }
        }
    }
    return holds;
}

constexpr std::array<std::pair<std::string_view, bool (*)()>, 4> kTests{
    {{"agenda", agenda}, {"ends", ends}, {"kept", kept}, {"sharing", sharing}}};

}  // namespace

int main(int count, char** arguments) {
    for (const auto& [name, test] : kTests)
        if (count == 2 && name == arguments[1]) return test() ? 0 : 1;
    std::fprintf(stderr, "give the name of a container\n");
    return 2;
}
