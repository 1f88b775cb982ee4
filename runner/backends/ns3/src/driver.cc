// SPDX-License-Identifier: GPL-2.0-only
// A packet network as a service: commands on standard input, answers on standard output, a line each.
//
//   set NAME VALUE...          one setting
//   nodes COUNT SWITCH...      all nodes; the others are hosts
//   link A B BITS_PER_S DELAY_PS LOSS
//   report delivered|acknowledged|both
//   build                      -> ready
//   send ID FROM TO BYTES AT_PS
//   run LIMIT_PS               -> for every completion: d|a ID TIME_PS; then: now TIME_PS [idle]
//   links                      -> for every direction: u FROM TO WIDTH_PS BYTES... (sent in each stretch of
//   time)
//                                 and l FROM TO BYTES BUSY QUEUED PAUSED PACKETS PAUSES
//   DROPS
//                                 QUEUE_BYTES; then: end DATA_PACKETS EVENTS
//
// run stops at the first instant in which something completes, or at the limit (-1: none). A mistake is
// answered with "error TEXT" and ends the program, as does the end of the input.
#include <sys/prctl.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <new>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>

#include "clock.h"
#include "fabric.h"

namespace chakrascope::packet {
namespace {

class Driver {
  public:
    // Carry out one line; returns false at the end.
    bool obey(const std::string& line) {
        std::istringstream words(line);
        std::string command;
        words >> command;
        if (command == "send") return send(words);
        if (command == "run") return run(words);
        if (command == "set") return set(words);
        if (command == "nodes") return nodes(words);
        if (command == "link") return link(words);
        if (command == "report") return report(words);
        if (command == "build") return build();
        if (command == "links") return links();
        if (command == "quit") return false;
        if (command.empty()) return true;
        throw std::runtime_error("there is no command '" + command + "'");
    }

  private:
    bool send(std::istringstream& words) {
        std::uint64_t id = 0, bytes = 0;
        std::int32_t source = 0, destination = 0;
        Ticks time = 0;
        read(words >> id >> source >> destination >> bytes >> time, "send");
        fabric_.send(id, source, destination, bytes, time);
        return true;
    }

    bool run(std::istringstream& words) {
        Ticks limit = 0;
        read(words >> limit, "run");
        std::string answer;
        for (const Completion& item : fabric_.run(limit < 0 ? Ticks{1} << 62 : limit)) {
            answer += item.acknowledged ? "a " : "d ";
            answer += std::to_string(item.flow) + ' ' + std::to_string(item.time) + '\n';
        }
        say(answer + "now " + std::to_string(now()) + (fabric_.idle() ? " idle\n" : "\n"));
        return true;
    }

    bool set(std::istringstream& words) {
        std::string name, value;
        words >> name >> std::ws;
        std::getline(words, value);
        if (!fabric_.settings.set(name, value))
            throw std::runtime_error("there is no setting '" + name + "'");
        return true;
    }

    bool nodes(std::istringstream& words) {
        std::int32_t count = 0;
        read(words >> count, "nodes");
        std::set<std::int32_t> switches;
        for (std::int32_t node = 0; words >> node;) switches.insert(node);
        fabric_.set_nodes(count, switches);
        return true;
    }

    bool link(std::istringstream& words) {
        std::int32_t a = 0, b = 0;
        std::uint64_t rate = 0;
        Ticks delay = 0;
        double loss = 0;
        read(words >> a >> b >> rate >> delay >> loss, "link");
        fabric_.add_link(a, b, rate, delay, loss);
        return true;
    }

    bool report(std::istringstream& words) {
        std::string which;
        words >> which;
        fabric_.report_delivered = which != "acknowledged";
        fabric_.report_acknowledged = which != "delivered";
        return true;
    }

    bool build() {
        random_engine().seed(fabric_.settings.seed);
        fabric_.build();
        say("ready\n");
        return true;
    }

    bool links() {
        std::ostringstream answer;
        for (const LinkReport& item : fabric_.links()) {
            const PortUse& use = item.use;
            answer << "l " << item.from << ' ' << item.to << ' ' << use.bytes << ' ' << use.busy << ' '
                   << use.queued << ' ' << use.paused << ' ' << use.packets << ' ' << use.pauses << ' '
                   << use.drops << ' ' << use.largest_queue_bytes << '\n';
            answer << "u " << item.from << ' ' << item.to << ' ' << item.history.width;
            for (const std::uint64_t bytes : item.history.bytes) answer << ' ' << bytes;
            answer << '\n';
        }
        answer << "end " << fabric_.data_packets() << ' ' << ns3::Simulator::GetEventCount() << '\n';
        say(answer.str());
        return true;
    }

    static void read(const std::istream& words, const char* command) {
        if (!words) throw std::runtime_error(std::string("the command '") + command + "' is incomplete");
    }

    static void say(const std::string& text) {
        std::cout << text << std::flush;
        if (!std::cout) std::exit(1);  // nobody listens any more
    }

    Fabric fabric_;
};

}  // namespace
}  // namespace chakrascope::packet

int main() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::ios::sync_with_stdio(false);
    ns3::Time::SetResolution(ns3::Time::PS);
    chakrascope::packet::PacketSimulator::get();  // before anybody asks ns-3 for its own
    try {
        chakrascope::packet::Driver driver;
        for (std::string line; std::getline(std::cin, line) && driver.obey(line);) {
        }
    } catch (const std::bad_alloc&) {
        std::cout << "error there is not enough memory for it" << std::endl;
        return 1;
    } catch (const std::exception& error) {
        std::cout << "error " << error.what() << std::endl;
        return 1;
    }
    return 0;
}
