"""The rules of the four games in plain Python, one thing after another, for one world: slow, and easy to read.

Written from the published descriptions of MinAtar's games. Actions are MinAtar's: nothing, left, up, right, down, fire.
"""

import numpy as np

NOTHING, LEFT, UP, RIGHT, DOWN, FIRE = range(6)


class Breakout:
    def start(self, side):
        self.paddle, self.y, self.x = 4, 3, 0 if side == 0 else 9
        self.dx, self.dy = (1 if side == 0 else -1), 1
        self.trail, self.struck = (self.y, self.x), False
        self.bricks = {(y, x) for y in (1, 2, 3) for x in range(10)}

    def load(self, s):
        self.paddle, self.x, self.y = s["paddle"], s["x"], s["y"]
        self.dx, self.dy = (1 if s["right"] else -1), (1 if s["down"] else -1)
        self.trail, self.struck = (s["trail_y"], s["trail_x"]), bool(s["struck"])
        self.bricks = {(y + 1, x) for y, x in np.argwhere(np.reshape(s["bricks"], (3, 10))).tolist()}

    def step(self, action):
        reward, over = 0, False
        if action == LEFT:
            self.paddle = max(0, self.paddle - 1)
        elif action == RIGHT:
            self.paddle = min(9, self.paddle + 1)
        self.trail = (self.y, self.x)
        x, y = self.x + self.dx, self.y + self.dy
        if x < 0 or x > 9:
            x, self.dx = min(max(x, 0), 9), -self.dx
        on_brick = (y, x) in self.bricks
        if y < 0:
            y, self.dy = 0, -self.dy
        elif on_brick:
            if not self.struck:
                reward += 1
                self.bricks.remove((y, x))
                y, self.dy = self.y, -self.dy
        elif y == 9:
            if not self.bricks:
                self.bricks = {(row, column) for row in (1, 2, 3) for column in range(10)}
            if self.x == self.paddle:
                y, self.dy = self.y, -self.dy
            elif x == self.paddle:
                y, self.dx, self.dy = self.y, -self.dx, -self.dy
            else:
                over = True
        self.struck = on_brick
        self.x, self.y = x, y
        return reward, over

    def planes(self):
        board = np.zeros((4, 10, 10), np.uint8)
        board[0, 9, self.paddle] = board[1][self.trail] = board[3, self.y, self.x] = 1
        for place in self.bricks:
            board[2][place] = 1
        return board


class Freeway:
    def start(self, speeds):
        self.row, self.rest = 9, 3
        self.cars = [{"x": 0, "wait": abs(speed), "speed": speed} for speed in speeds]

    def load(self, s):
        self.row, self.rest = s["row"], s["rest"]
        each = zip(s["x"], s["wait"], s["pace"], s["right"], strict=True)
        self.cars = [{"x": x, "wait": w, "speed": p if right else -p} for x, w, p, right in each]

    def step(self, action, speeds):
        reward = 0
        if action in (UP, DOWN) and self.rest == 0:
            self.rest = 3
            self.row = max(0, self.row - 1) if action == UP else min(9, self.row + 1)
        if self.row == 0:
            reward, self.row = 1, 9
            for car, speed in zip(self.cars, speeds, strict=True):
                car["speed"], car["wait"] = speed, abs(speed)
        for lane, car in enumerate(self.cars, 1):
            if (car["x"], lane) == (4, self.row):
                self.row = 9
            if car["wait"] == 0:
                car["wait"] = abs(car["speed"])
                car["x"] = (car["x"] + (1 if car["speed"] > 0 else -1)) % 10
                if (car["x"], lane) == (4, self.row):
                    self.row = 9
            else:
                car["wait"] -= 1
        if self.rest > 0:
            self.rest -= 1
        return reward, False

    def planes(self):
        board = np.zeros((7, 10, 10), np.uint8)
        board[0, self.row, 4] = 1
        for lane, car in enumerate(self.cars, 1):
            board[1, lane, car["x"]] = 1
            board[1 + abs(car["speed"]), lane, (car["x"] - (1 if car["speed"] > 0 else -1)) % 10] = 1
        return board


class Asterix:
    def __init__(self, ramping=True):
        self.ramping = ramping

    def start(self):
        self.x = self.y = 5
        self.things = [None] * 8
        self.spawn_every, self.move_every, self.ramps = 10, 5, 0
        self.to_spawn, self.to_move, self.to_ramp = 10, 5, 100

    def load(self, s):
        for name in ("x", "y", "spawn_every", "move_every", "ramps", "to_spawn", "to_move"):
            setattr(self, name, s[name])
        self.to_ramp = s["to_ramp"] - 1
        each = zip(s["there"], s["thing_x"], s["right"], s["gold"], strict=True)
        self.things = [{"x": x, "right": bool(r), "gold": bool(g)} if there else None for there, x, r, g in each]

    def touch(self, slot):
        thing = self.things[slot]
        if thing is None or (thing["x"], slot + 1) != (self.x, self.y):
            return 0, False
        if thing["gold"]:
            self.things[slot] = None
            return 1, False
        return 0, True

    def step(self, action, right, gold, where):
        if self.to_spawn == 0:
            free = [slot for slot, thing in enumerate(self.things) if thing is None]
            if free:
                self.things[free[int(where * len(free))]] = {"x": 0 if right else 9, "right": right, "gold": gold}
            self.to_spawn = self.spawn_every
        self.x = min(max(self.x + (action == RIGHT) - (action == LEFT), 0), 9)
        self.y = min(max(self.y + (action == DOWN) - (action == UP), 1), 8)
        events = [self.touch(slot) for slot in range(8)]
        if self.to_move == 0:
            self.to_move = self.move_every
            for slot, thing in enumerate(self.things):
                if thing is not None:
                    thing["x"] += 1 if thing["right"] else -1
                    if not 0 <= thing["x"] <= 9:
                        self.things[slot] = None
                    events.append(self.touch(slot))
        self.to_spawn -= 1
        self.to_move -= 1
        self.ramp()
        return sum(reward for reward, _ in events), any(over for _, over in events)

    def ramp(self):
        if self.ramping and (self.spawn_every > 1 or self.move_every > 1):
            if self.to_ramp >= 0:
                self.to_ramp -= 1
            else:
                if self.move_every > 1 and self.ramps % 2 == 1:
                    self.move_every -= 1
                if self.spawn_every > 1:
                    self.spawn_every -= 1
                self.ramps += 1
                self.to_ramp = 100

    def planes(self):
        board = np.zeros((4, 10, 10), np.uint8)
        board[3, self.y, self.x] = 1
        for row, thing in enumerate(self.things, 1):
            if thing is not None:
                board[2 if thing["gold"] else 1, row, thing["x"]] = 1
                behind = thing["x"] - (1 if thing["right"] else -1)
                if 0 <= behind <= 9:
                    board[0, row, behind] = 1
        return board


class SpaceInvaders:
    def __init__(self, ramping=True):
        self.ramping = ramping

    def wave(self):
        return {(y, x) for y in range(4) for x in range(2, 8)}

    def start(self):
        self.cannon, self.aliens, self.ours, self.theirs = 5, self.wave(), set(), set()
        self.side, self.move_every = -1, 12
        self.to_fire, self.to_move, self.to_shoot = 0, 12, 10

    def load(self, s):
        for name in ("cannon", "move_every", "to_fire", "to_move", "to_shoot"):
            setattr(self, name, s[name])
        self.side = 1 if s["right"] else -1
        places = [
            {tuple(place) for place in np.argwhere(np.reshape(s[name], (10, 10))).tolist()}
            for name in ("aliens", "ours", "theirs")
        ]
        self.aliens, self.ours, self.theirs = places

    def step(self, action):
        over = False
        if action == FIRE and self.to_fire == 0:
            self.ours.add((9, self.cannon))
            self.to_fire = 5
        elif action == LEFT:
            self.cannon = max(0, self.cannon - 1)
        elif action == RIGHT:
            self.cannon = min(9, self.cannon + 1)
        here = (9, self.cannon)
        self.ours = {(y - 1, x) for y, x in self.ours if y > 0}
        self.theirs = {(y + 1, x) for y, x in self.theirs if y < 9}
        over = over or here in self.theirs or here in self.aliens
        if self.to_move == 0:
            self.to_move = min(len(self.aliens), self.move_every)
            edge = 0 if self.side < 0 else 9
            if any(x == edge for _, x in self.aliens):
                self.side = -self.side
                over = over or any(y == 9 for y, _ in self.aliens)
                self.aliens = {((y + 1) % 10, x) for y, x in self.aliens}
            else:
                self.aliens = {(y, x + self.side) for y, x in self.aliens}
            over = over or here in self.aliens
        if self.to_shoot == 0:
            self.to_shoot = 10
            nearest = min({x for _, x in self.aliens}, key=lambda x: (abs(x - self.cannon), x))
            self.theirs.add((max(y for y, x in self.aliens if x == nearest), nearest))
        hits = self.aliens & self.ours
        self.aliens -= hits
        self.ours -= hits
        if self.to_fire > 0:
            self.to_fire -= 1
        self.to_move -= 1
        self.to_shoot -= 1
        if not self.aliens:
            if self.ramping and self.move_every > 6:
                self.move_every -= 1
            self.aliens = self.wave()
        return len(hits), over

    def planes(self):
        board = np.zeros((6, 10, 10), np.uint8)
        board[0, 9, self.cannon] = 1
        for plane, places in (
            (1, self.aliens),
            (2 if self.side < 0 else 3, self.aliens),
            (4, self.ours),
            (5, self.theirs),
        ):
            for place in places:
                board[plane][place] = 1
        return board


class Seaquest:
    def __init__(self, ramping=True):
        self.ramping = ramping

    def start(self):
        self.x, self.y, self.right = 5, 0, False
        self.air, self.crew, self.surfaced = 200, 0, True
        self.foes, self.divers, self.shots, self.shells = [], [], [], set()
        self.to_spawn, self.to_dive, self.to_fire = 20, 30, 0
        self.spawn_every, self.move_every, self.ramps = 20, 5, 0

    def load(self, s):
        for name in ["x", "y", "air", "to_spawn", "to_dive", "to_fire", "spawn_every", "move_every", "ramps"]:
            setattr(self, name, s[name])
        self.right, self.surfaced, self.crew = bool(s["right"]), bool(s["surfaced"]), int(s["crew"])

        def listed(prefix, *names):
            columns = [s[f"{prefix}_{name}"] for name in ("x", "y", "right", *names)]
            keys = ["x", "y", "right", *names]
            rows = [dict(zip(keys, row, strict=True)) for row in zip(*columns, strict=True)]
            kept = [row for row, there in zip(rows, s[prefix], strict=True) if there]
            return [{**row, "right": bool(row["right"])} for row in reversed(kept)]

        self.foes = [{**foe, "armed": bool(foe["armed"])} for foe in listed("foe", "armed", "move", "shoot")]
        for foe in self.foes:
            foe["shoot"] *= foe["armed"]  # of no use to fish
        self.divers, self.shots = listed("diver", "move"), listed("shot")
        both = (("shells_left", False), ("shells_right", True))
        self.shells = {(p % 10, p // 10, right) for name, right in both for p in np.flatnonzero(s[name]).tolist()}

    def here(self, thing):
        return (thing["x"], thing["y"]) == (self.x, self.y)

    def move(self, thing, every):
        """One step of its clock; whether it moved."""
        if thing["move"] > 0:
            thing["move"] -= 1
            return False
        thing["move"] = every
        thing["x"] += 1 if thing["right"] else -1
        return True

    def step(self, action, side, kind, row, diver_side, diver_row):
        self.arrive(side, kind, row, diver_side, diver_row)
        self.act(action)
        reward = self.shoot()
        self.rescue()
        over = False
        for armed in (True, False):
            for foe in [foe for foe in self.foes if foe["armed"] == armed][::-1]:
                struck, touched = self.follow(foe)
                reward, over = reward + struck, over or touched
            if armed:
                over = self.fly() or over
        for timer in ("to_spawn", "to_dive", "to_fire"):
            setattr(self, timer, max(getattr(self, timer) - 1, 0))
        over = over or self.air <= 0
        if self.y > 0:
            self.air, self.surfaced = max(self.air - 1, 0), False
        elif not self.surfaced:
            if self.crew == 0:
                over = True
            else:
                reward += self.surface()
        return reward, over

    def arrive(self, side, kind, row, diver_side, diver_row):
        if self.to_spawn == 0:
            self.to_spawn = self.spawn_every
            right, y, armed = side < 0.5, 1 + int(row * 8), kind < 1 / 3
            if all(foe["y"] != y or foe["right"] == right for foe in self.foes):
                foe = {"x": 0 if right else 9, "y": y, "right": right, "armed": armed}
                self.foes.append({**foe, "move": self.move_every, "shoot": 10 * armed})
        if self.to_dive == 0:
            self.to_dive = 30
            right = diver_side < 0.5
            self.divers.append({"x": 0 if right else 9, "y": 1 + int(diver_row * 8), "right": right, "move": 5})

    def act(self, action):
        if action == FIRE and self.to_fire == 0:
            self.shots.append({"x": self.x, "y": self.y, "right": self.right})
            self.to_fire = 5
        elif action in (LEFT, RIGHT):
            self.right = action == RIGHT
            self.x = min(max(self.x + (1 if self.right else -1), 0), 9)
        elif action in (UP, DOWN):
            self.y = min(max(self.y + (1 if action == DOWN else -1), 0), 8)

    def shoot(self):
        reward = 0
        for shot in self.shots[::-1]:
            shot["x"] += 1 if shot["right"] else -1
            met = [foe for foe in self.foes if (foe["x"], foe["y"]) == (shot["x"], shot["y"])]
            if met:
                struck = min(met, key=lambda foe: foe["armed"])  # fish first; the oldest of a kind
                self.foes = [foe for foe in self.foes if foe is not struck]
                reward += 1
            if met or not 0 <= shot["x"] <= 9:
                self.shots = [other for other in self.shots if other is not shot]
        return reward

    def rescue(self):
        for diver in self.divers[::-1]:
            aboard = self.crew < 6 and self.here(diver)
            if not aboard and self.move(diver, 5):
                aboard = self.crew < 6 and self.here(diver)
            self.crew += aboard
            if aboard or not 0 <= diver["x"] <= 9:
                self.divers = [other for other in self.divers if other is not diver]

    def follow(self, foe):
        """(whether a shot struck it, whether it touched the boat)."""
        touched, struck = self.here(foe), False
        if self.move(foe, self.move_every):
            if self.here(foe):
                touched = True
            else:
                met = [shot for shot in self.shots if (shot["x"], shot["y"]) == (foe["x"], foe["y"])]
                struck = bool(met)
                self.shots = [shot for shot in self.shots if not met or shot is not met[0]]
        if foe["armed"]:
            if foe["shoot"] == 0:
                self.shells.add((foe["x"], foe["y"], foe["right"]))
            foe["shoot"] = foe["shoot"] - 1 if foe["shoot"] > 0 else 10
        if struck or not 0 <= foe["x"] <= 9:
            self.foes = [other for other in self.foes if other is not foe]
        return struck, touched

    def fly(self):
        """Shells fly on; whether one met the boat before or after."""
        flown = {(x + (1 if right else -1), y, right) for x, y, right in self.shells}
        hit = any((x, y) == (self.x, self.y) for x, y, _ in self.shells | flown)
        self.shells = {shell for shell in flown if 0 <= shell[0] <= 9}
        return hit

    def surface(self):
        reward = self.air * 10 // 200 if self.crew == 6 else 0
        self.crew = (0 if self.crew == 6 else self.crew) - 1
        self.air, self.surfaced = 200, True
        if self.ramping and (self.spawn_every > 1 or self.move_every > 2):
            if self.move_every > 2 and self.ramps % 2 == 1:
                self.move_every -= 1
            if self.spawn_every > 1:
                self.spawn_every -= 1
            self.ramps += 1
        return reward

    def planes(self):
        board = np.zeros((10, 10, 10), np.uint8)
        board[0, self.y, self.x] = board[1, self.y, self.x - (1 if self.right else -1)] = 1
        for shot in self.shots:
            board[2, shot["y"], shot["x"]] = 1
        for x, y, _ in self.shells:
            board[4, y, x] = 1
        for thing in [*self.foes, *self.divers]:
            board[(6 if thing["armed"] else 5) if "armed" in thing else 9, thing["y"], thing["x"]] = 1
            behind = thing["x"] - (1 if thing["right"] else -1)
            if 0 <= behind <= 9:
                board[3, thing["y"], behind] = 1
        board[7, 9, : self.air * 10 // 200] = 1
        board[8, 9, 9 - self.crew : 9] = 1
        return board
