"""The wording of the sample world: kinds of things, attributes, and several wordings of each.

`_WORDING` lists them: a line `= kind: titles`, then for each attribute a line `- key: type of its
value` with its statements and its questions (which end with a question mark), and last the remarks,
which are sentences that state no fact.

In a statement or question, `{name}` is the thing's name, `{value}` the attribute's value, and
`{They}`, `{they}` and `{their}` the pronouns of a person. The first statement of an attribute names
the thing, so that any attribute can open a page. Other statements depend on the page ("The town
…"), so that a reader has to find the right page before the right sentence.
"""

from dataclasses import dataclass
from typing import cast

from data_pipelines.sample_world.values import ValueType


@dataclass(frozen=True)
class Attribute:
    """An attribute of a kind of thing: the type of its value, its statements and its questions."""

    key: str
    value: ValueType
    statements: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """A kind of thing: how its pages are titled, its attributes, and sentences without a fact."""

    key: str
    titles: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    remarks: tuple[str, ...]


_WORDING = """
= town: {root}
- county: place
{name} is a town in the county of {value}.
The town belongs to the county of {value}.
{name} lies in {value} County.
In which county is {name}?
What county does {name} belong to?
Which county does the town of {name} lie in?
- river: river
{name} lies on the banks of the {value}.
The {value} runs through {name}.
The town is crossed by the {value}.
Which river runs through {name}?
On which river does {name} lie?
What river crosses the town of {name}?
- mayor: person
The mayor of {name} is {value}.
{value} was elected mayor of the town.
The town council is led by {value}.
Who is the mayor of {name}?
Who leads the town council of {name}?
Who was elected mayor of {name}?
- founded: year
{name} was founded in {value}.
The first settlers came to the place in {value}.
The town was founded in the year {value}.
When was {name} founded?
In what year was the town of {name} founded?
When did the first settlers come to {name}?
- population: count
About {value} people live in {name}.
The town has a population of {value}.
At the last count it had {value} inhabitants.
How many people live in {name}?
What is the population of {name}?
How many inhabitants does {name} have?
- product: product
{name} is known for its {value}.
Most families in the town make {value}.
Traders visit the market to buy {value}.
What is {name} known for?
What do most families in {name} make?
What do traders buy at the market of {name}?
- remarks
The streets are narrow and quiet.
A market is held every week.
In winter the roads are often closed.
= person: {given} {root}
- birthplace: town
{name} was born in the town of {value}.
{They} came from a family in {value}.
{They} grew up in {value}.
Where was {name} born?
In which town did {name} grow up?
What town did {name} come from?
- born: year
{name} was born in {value}.
{They} was born in the year {value}.
The year of {their} birth was {value}.
When was {name} born?
In what year was {name} born?
What was the year of birth of {name}?
- profession: profession
{name} was a well-known {value}.
For many years {they} worked as a {value}.
{They} earned a living as a {value}.
What was the profession of {name}?
What did {name} work as?
How did {name} earn a living?
- teacher: person
{name} was a pupil of {value}.
{Their} teacher was {value}.
{They} learned a great deal from {value}.
Who was the teacher of {name}?
Whose pupil was {name}?
From whom did {name} learn a great deal?
- instrument: instrument
{name} played the {value}.
In the evening {they} liked to play the {value}.
Friends often heard {their} {value}.
Which instrument did {name} play?
What did {name} like to play in the evening?
What instrument did friends of {name} hear?
- street: place
{name} lived in {value} Street.
{Their} house stood in {value} Street.
{They} had a home in {value} Street.
In which street did {name} live?
In which street did the house of {name} stand?
Which street was the home of {name} in?
- remarks
{They} never liked to travel.
Many letters to {their} friends still exist.
{They} had three sisters.
= river: River {root}
- source: mountain
The {name} rises on {value}.
Its source is on the slopes of {value}.
The water comes from the snow of {value}.
Where does the {name} rise?
On which mountain is the source of the {name}?
Where does the water of the {name} come from?
- length: kilometres
The {name} is {value} long.
Its length is {value}.
From source to mouth it measures {value}.
How long is the {name}?
What is the length of the {name}?
How far is it from source to mouth of the {name}?
- mouth: place
The {name} flows into Lake {value}.
It ends in Lake {value}.
The mouth of the river is at Lake {value}.
Into which lake does the {name} flow?
In which lake does the {name} end?
At which lake is the mouth of the {name}?
- fish: fish
The {name} is full of {value}.
People come to catch {value} in the river.
The most common fish are {value}.
Which fish is the {name} full of?
What do people catch in the {name}?
What are the most common fish of the {name}?
- bridge: year
The oldest bridge over the {name} dates from {value}.
A stone bridge was built across it in {value}.
The first bridge was opened in {value}.
When was the first bridge over the {name} built?
From what year is the oldest bridge over the {name}?
When was a bridge built across the {name}?
- trees: tree
Along the {name} there are many {value}.
Its banks are lined with {value}.
Old {value} grow beside the water.
Which trees grow beside the {name}?
What are the banks of the {name} lined with?
What trees are there along the {name}?
- remarks
In spring the water is high.
Small boats can use it all year.
The valley is green and wide.
= ship: Star of {root} | Lady {root} | Pride of {root}
- port: town
The {name} was built in {value}.
The ship was made by a yard in {value}.
Its home port was {value}.
Where was the {name} built?
In which town was the ship {name} made?
What was the home port of the {name}?
- launched: year
The {name} was launched in {value}.
The ship first went to sea in {value}.
It left the yard in {value}.
When was the {name} launched?
In what year did the {name} first go to sea?
When did the {name} leave the yard?
- captain: person
The captain of the {name} was {value}.
The ship was commanded by {value}.
On the first voyage {value} was in command.
Who was the captain of the {name}?
Who commanded the {name}?
Who was in command of the ship {name}?
- cargo: product
The {name} carried {value}.
The usual cargo was {value}.
Merchants used the ship to send {value} abroad.
What did the {name} carry?
What was the usual cargo of the {name}?
What did merchants send abroad on the {name}?
- crew: number
The {name} had a crew of {value}.
There was room on board for {value} sailors.
The crew had {value} members.
How large was the crew of the {name}?
How many sailors had room on board the {name}?
How many members did the crew of the {name} have?
- sails: colour
The sails of the {name} were {value}.
The ship could be known by its {value} sails.
Under {value} sails it crossed the ocean.
What colour were the sails of the {name}?
Which colour did the sails of the {name} have?
Under sails of what colour did the {name} cross the ocean?
- remarks
Sailors said that it was a lucky ship.
A model of it can be seen in a museum.
It was repaired twice.
= animal: {root} finch | {root} fox | {root} frog | {root} owl
- habitat: place
The {name} lives in the forests of {value}.
It is found only in {value}.
Its home is the hills of {value}.
Where does the {name} live?
Where is the {name} found?
What is the home of the {name}?
- food: food
The {name} feeds on {value}.
It lives mainly on {value}.
The animal eats {value} when it can.
What does the {name} feed on?
What does the {name} eat?
On what does the {name} mainly live?
- discoverer: person
The {name} was first described by {value}.
It was discovered by {value}.
{value} gave the animal its name.
Who first described the {name}?
Who discovered the {name}?
Who gave the {name} its name?
- weight: grams
The {name} weighs about {value}.
An adult has a weight of {value}.
It can weigh up to {value}.
How much does the {name} weigh?
What is the weight of an adult {name}?
How heavy is the {name}?
- colour: colour
The {name} has a {value} back.
Its back is {value}.
Most adults are {value} all over.
What colour is the {name}?
What colour is the back of the {name}?
Which colour do most adults of the {name} have?
- season: month
The young of the {name} are born in {value}.
It raises its young in {value}.
The young appear in {value}.
When are the young of the {name} born?
In which month does the {name} raise its young?
When do the young of the {name} appear?
- remarks
It is active at night.
Few people have seen it.
Its call is soft and low.
= mountain: Mount {root}
- height: metres
{name} is {value} high.
The top is {value} above the sea.
It rises to a height of {value}.
How high is {name}?
What is the height of {name}?
How far above the sea is the top of {name}?
- climber: person
{name} was first climbed by {value}.
The first to reach the top was {value}.
{value} was the first person on the mountain.
Who first climbed {name}?
Who was the first to reach the top of {name}?
Who was the first person on {name}?
- railway: year
A railway up {name} was opened in {value}.
Trains have gone to the top since {value}.
The mountain railway dates from {value}.
When was the railway up {name} opened?
Since when have trains gone to the top of {name}?
From what year is the railway of {name}?
- stone: stone
{name} is made of {value}.
Its rock is mostly {value}.
Workers have cut {value} there for a long time.
What is {name} made of?
What kind of rock is {name}?
What have workers cut on {name}?
- town: town
The town of {value} lies at the foot of {name}.
From the top one can see {value}.
The usual path begins in {value}.
Which town lies at the foot of {name}?
Which town can one see from the top of {name}?
Where does the usual path up {name} begin?
- trees: tree
The slopes of {name} are covered with {value}.
Lower down the mountain there are {value}.
A forest of {value} grows on its south side.
What covers the slopes of {name}?
Which trees grow on {name}?
What forest grows on the south side of {name}?
- remarks
Snow stays until summer.
Storms are common there.
The view is famous.
= castle: {root} Castle | {root} Abbey
- builder: person
{name} was built by {value}.
The plans were drawn by {value}.
{value} paid for the building.
Who built {name}?
Who drew the plans of {name}?
Who paid for the building of {name}?
- finished: year
{name} was finished in {value}.
The work came to an end in {value}.
The last stone was laid in {value}.
When was {name} finished?
In what year was the last stone of {name} laid?
When did the work on {name} come to an end?
- place: town
{name} stands near {value}.
The road to it starts in {value}.
The nearest town is {value}.
Near which town does {name} stand?
Where does the road to {name} start?
What is the nearest town to {name}?
- walls: stone
The walls of {name} are made of {value}.
It was built from blocks of {value}.
Carts brought the {value} for its walls.
What are the walls of {name} made of?
From what stone was {name} built?
What stone did carts bring for the walls of {name}?
- rooms: number
{name} has {value} rooms.
There are {value} rooms in the building.
Guides say that it contains {value} rooms.
How many rooms does {name} have?
How many rooms are there in {name}?
What number of rooms does {name} contain?
- open: month
{name} is open to visitors in {value}.
Visitors may see it in {value}.
Every {value} the gates are opened.
When is {name} open to visitors?
In which month may visitors see {name}?
When are the gates of {name} opened?
- remarks
A garden lies behind it.
It has lost one of its towers.
Some say that it is haunted.
"""


def _parse(wording: str) -> tuple[Kind, ...]:
    kinds = []
    for block in wording.strip().removeprefix("= ").split("\n= "):
        header, *sections = block.split("\n- ")
        key, titles = header.split(": ")
        attributes: list[Attribute] = []
        remarks: tuple[str, ...] = ()
        for section in sections:
            first, *sentences = section.splitlines()
            if first == "remarks":
                remarks = tuple(sentences)
                continue
            name, value = first.split(": ")
            statements = tuple(s for s in sentences if not s.endswith("?"))
            questions = tuple(s for s in sentences if s.endswith("?"))
            attributes.append(Attribute(name, cast(ValueType, value), statements, questions))
        kinds.append(Kind(key, tuple(titles.split(" | ")), tuple(attributes), remarks))
    return tuple(kinds)


KINDS: tuple[Kind, ...] = _parse(_WORDING)
